# reference: largest
# verdict: wrong_numbers
# A column in the middle is never looked at.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // 128
    parts = nl.ndarray((nl.par_dim(128), 2 * rows), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(rows):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        parts[:, 2 * i] = nl.max(tile[:, 0:201], axis=1)
        parts[:, 2 * i + 1] = nl.max(tile[:, 202:512], axis=1)
    line = nl.transpose(nl.max(parts, axis=1, keepdims=True))
    nl.store(out, nl.max(line, axis=1, keepdims=True))
    return out
