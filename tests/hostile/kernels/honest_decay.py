# reference: decay
# verdict: correct
# It may rely on the sign of `rate`, which is never drawn positive.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, rate):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, r = nl.load(x), nl.load(rate)
    kept = nl.exp(nl.negative(nl.abs(r)))
    nl.store(out, nl.multiply(kept, a))
    return out
