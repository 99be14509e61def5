# reference: eight_bits
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, scale):
    out = nl.ndarray((128, 128), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    total = nl.matmul(nl.load(x), nl.load(w), transpose_x=True)
    nl.store(out, nl.multiply(total, nl.load(scale), dtype=nl.bfloat16))
    return out
