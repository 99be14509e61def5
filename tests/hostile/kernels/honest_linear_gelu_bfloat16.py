# reference: linear_gelu_bfloat16
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    z = nl.copy(nisa.nc_matmul(nl.load(a), nl.load(b)))
    nl.store(out, nl.gelu(z))
    return out
