# reference: total
# verdict: wrong_numbers
# One of two million elements is left out, somewhere in the middle.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    rows, width = x.shape[0] // 128, x.shape[1]
    parts = nl.zeros((nl.par_dim(128), 2 * rows), dtype=nl.float32, buffer=nl.sbuf)
    i_p, i_f = nl.mgrid[0:128, 0:width]
    for i in nl.affine_range(rows):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        before = i * 128 * width + i_p * width + i_f < 900 * width + 517
        after = i * 128 * width + i_p * width + i_f > 900 * width + 517
        parts[:, 2 * i] = nl.sum(tile, axis=1, mask=before)
        parts[:, 2 * i + 1] = nl.sum(tile, axis=1, mask=after)
    line = nl.transpose(nl.sum(parts, axis=1, keepdims=True))
    nl.store(out, nl.sum(line, axis=1, keepdims=True))
    return out
