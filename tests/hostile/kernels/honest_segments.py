# reference: segments
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, segments):
    out = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    a = nl.load(x)
    names = nl.broadcast_to(nl.load(segments, dtype=nl.float32), shape=(128, 96))
    found = nl.zeros((128, 8), dtype=nl.float32)
    for s in nl.static_range(8):
        here = nl.equal(names, float(s), dtype=nl.float32)
        largest = nl.max(nl.where(here, a, -3e38), axis=1, keepdims=True)
        some = nl.max(here, axis=1, keepdims=True)
        found[:, s : s + 1] = nl.where(some, largest, 0.0)
    nl.store(out, found)
    return out
