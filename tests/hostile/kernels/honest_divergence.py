# reference: divergence
# verdict: correct
# A difference of sums, which rounds on their scale where the result is zero.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, y):
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)

    a, b = nl.load(x), nl.load(y)
    most, other = nl.max(a, axis=1, keepdims=True), nl.max(b, axis=1, keepdims=True)
    e = nl.exp(nl.subtract(a, most))
    total = nl.sum(e, axis=1, keepdims=True)
    others = nl.sum(nl.exp(nl.subtract(b, other)), axis=1, keepdims=True)
    mean = nl.divide(nl.sum(nl.multiply(e, nl.subtract(a, b)), axis=1, keepdims=True), total)
    sums = nl.subtract(nl.add(other, nl.log(others)), nl.add(most, nl.log(total)))
    d = nl.add(mean, sums)
    nl.store(out, d)
    return out
