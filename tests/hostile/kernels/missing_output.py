# reference: pair
# verdict: wrong_shape
# zip() stops at the shorter one.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    plus = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    minus = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, b = nl.load(x), nl.load(y)
    nl.store(plus, nl.add(a, b))
    nl.store(minus, nl.subtract(a, b))
    return plus
