# reference: silu
# verdict: correct
# Another way to the same.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        y = nl.multiply(tile, nl.reciprocal(nl.add(nl.exp(nl.negative(tile)), 1.0)))
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
