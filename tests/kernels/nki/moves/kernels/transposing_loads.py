"""Scores of queries and keys: transposing loads of a block, of a slice, and of a whole tensor."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k, bias):
    rows, width = q.shape
    out = nl.ndarray((rows, 256), dtype=q.dtype, buffer=nl.shared_hbm)
    keys = nl.load_transpose2d(k[128:384, 0:width])
    added = nl.load_transpose2d(bias, dtype=nl.float32)
    for i in nl.affine_range(rows // 128):
        queries = nl.load_transpose2d(q[i * 128 : (i + 1) * 128, :])
        scores = nl.matmul(queries, nl.add(keys, added), transpose_x=True)
        nl.store(out[i * 128 : (i + 1) * 128, :], value=scores)
    return out
