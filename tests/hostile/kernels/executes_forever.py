# reference: softmax
# verdict: compile_error
# Traced in a moment, executed in a year: ten billion instructions are refused before they run.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:128, :])
    for i in nl.sequential_range(10**10):
        tile[...] = nl.add(tile, 1.0)
    nl.store(out[0:128, :], tile)
    return out
