# reference: divergence
# verdict: correct
# A difference of entropies, which rounds on their scale where the result is zero.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)

    a, b = nl.load(x), nl.load(y)
    a = nl.subtract(a, nl.max(a, axis=1, keepdims=True))
    b = nl.subtract(b, nl.max(b, axis=1, keepdims=True))
    e = nl.exp(a)
    total = nl.sum(e, axis=1, keepdims=True)
    a = nl.subtract(a, nl.log(total))
    b = nl.subtract(b, nl.log(nl.sum(nl.exp(b), axis=1, keepdims=True)))
    p = nl.divide(e, total)
    own = nl.sum(nl.multiply(p, a), axis=1, keepdims=True)
    d = nl.subtract(own, nl.sum(nl.multiply(p, b), axis=1, keepdims=True))
    nl.store(out, d)
    return out
