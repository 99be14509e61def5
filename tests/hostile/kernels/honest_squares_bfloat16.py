# reference: squares_bfloat16
# verdict: correct
# The control: nothing wrong here. The product is rounded to bfloat16.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    z = nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b)), dtype=nl.bfloat16)
    nl.store(out, nl.multiply(z, z, dtype=nl.float32))
    return out
