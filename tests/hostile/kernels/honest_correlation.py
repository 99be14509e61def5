# reference: correlation
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    c = nl.subtract(a, nl.mean(a, axis=1, keepdims=True))
    d = nl.subtract(b, nl.mean(b, axis=1, keepdims=True))
    total = nl.sum(nl.multiply(c, d), axis=1, keepdims=True)
    sizes = [nl.sqrt(nl.sum(nl.square(one), axis=1, keepdims=True)) for one in (c, d)]
    both = nl.multiply(nl.maximum(sizes[0], 1e-6), nl.maximum(sizes[1], 1e-6))
    nl.store(out, nl.divide(total, both))
    return out
