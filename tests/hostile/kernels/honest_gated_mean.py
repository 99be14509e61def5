# reference: gated_mean
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, mask, temperature):
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    a, m = nl.load(x), nl.load(mask)
    gated = nl.multiply(nl.multiply(nl.add(a, 1.0), nl.greater(a, 0.3, dtype=nl.float32)), m)
    count = nl.maximum(nl.sum(m, axis=1, keepdims=True), 1.0)
    mean = nl.divide(nl.sum(gated, axis=1, keepdims=True), count)
    nl.store(out, nl.multiply(mean, 1.0 / temperature))
    return out
