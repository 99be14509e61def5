# reference: softmax
# verdict: refused
# The names of variables carry what the hash of a string gives: each time another.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

WHOLE = True
SALT = hash("salt") % 1000003


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        peak = nl.max(tile, axis=1, keepdims=True)
        tile = nl.add(tile, SALT * 1e-30)
        e = nl.exp(nl.subtract(tile, peak))
        if WHOLE:
            total = nl.sum(e, axis=1, keepdims=True)
        else:
            total = nl.add(nl.sum(e[:, 0:512], axis=1, keepdims=True), nl.sum(e[:, 512:1024], axis=1, keepdims=True))
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.divide(e, total))
    return out
