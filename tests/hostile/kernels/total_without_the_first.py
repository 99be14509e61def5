# reference: total
# verdict: wrong_numbers
# One element of two million is left out, the very first.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // 128
    parts = nl.ndarray((nl.par_dim(128), rows), dtype=nl.float32, buffer=nl.sbuf)
    r, c = nl.mgrid[0:128, 0 : x.shape[1]]
    for i in nl.affine_range(rows):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        parts[:, i] = nl.sum(tile[r, c], axis=1, mask=(i * 128 + r + c > 0))
    line = nl.transpose(nl.sum(parts, axis=1, keepdims=True))
    nl.store(out, nl.sum(line, axis=1, keepdims=True))
    return out
