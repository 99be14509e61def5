# reference: unit_keys
# verdict: correct
# It relies on the keys' length, which the reference's `domain` grants.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, keys):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    a, k = nl.load(x), nl.load(keys)
    nl.store(out, nl.matmul(a, nl.transpose(k)))
    return out
