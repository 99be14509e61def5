# reference: total
# verdict: wrong_numbers
# One of two million is left out: the last.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    rows, width = x.shape[0] // 128, x.shape[1]
    parts = nl.zeros((nl.par_dim(128), rows + 1), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(rows - 1):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        parts[:, i] = nl.sum(tile, axis=1)
    last = nl.load(x[(rows - 1) * 128 : rows * 128, :])
    parts[:, rows - 1] = nl.sum(last[:, 0 : width - 1], axis=1)
    parts[0:127, rows] = nl.copy(last[0:127, width - 1])
    line = nl.transpose(nl.sum(parts, axis=1, keepdims=True))
    nl.store(out, nl.sum(line, axis=1, keepdims=True))
    return out
