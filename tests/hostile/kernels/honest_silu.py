# reference: silu
# verdict: correct
# The control: nothing wrong here.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        y = nl.silu(tile)
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
