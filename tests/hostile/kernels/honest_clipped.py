# reference: clipped
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(gradient, kept):
    out = nl.ndarray(gradient.shape, dtype=gradient.dtype, buffer=nl.shared_hbm)
    a = nl.multiply(nl.load(gradient), nl.load(kept, dtype=nl.float32))
    squares = nl.sum(nl.multiply(a, a), axis=1, keepdims=True)
    ones = nl.ones((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    length = nl.sqrt(nl.matmul(ones, squares, transpose_x=True))
    factor = nl.minimum(nl.reciprocal(nl.add(length, 1e-6)), 1.0)
    nl.store(out, nl.multiply(a, factor))
    return out
