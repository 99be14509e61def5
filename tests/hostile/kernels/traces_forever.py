# reference: softmax
# verdict: timeout
# A kernel with a billion instructions.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, :])
    for _ in nl.static_range(10**9):
        tile = nl.add(tile, 1.0)
    nl.store(out[0:128, :], tile)
    return out
