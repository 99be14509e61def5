# reference: silu
# verdict: wrong_numbers
# Below -12 there is hardly anything.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        y = nl.multiply(nl.silu(tile), nl.greater(tile, -12.0))
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
