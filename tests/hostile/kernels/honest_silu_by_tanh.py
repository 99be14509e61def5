# reference: silu
# verdict: correct
# Another way to the same, as accurate as its argument.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        half = nl.multiply(nl.tanh(nl.multiply(tile, 0.5)), 0.5)
        y = nl.multiply(tile, nl.add(half, 0.5))
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
