# reference: softmax
# verdict: refused
# An iteration of nl.affine_range uses what the one before it loaded: right only in program order.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    rows, width = x.shape[0] // 128, x.shape[1]
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ahead = nl.zeros((rows + 1, nl.par_dim(128), width), dtype=x.dtype, buffer=nl.sbuf)
    ahead[0] = nl.load(x[0:128, :])
    for i in nl.affine_range(rows):
        peak = nl.max(ahead[i], axis=1, keepdims=True)
        e = nl.exp(nl.subtract(ahead[i], peak))
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.divide(e, nl.sum(e, axis=1, keepdims=True)))
        ahead[i + 1] = nl.load(x[(rows - 1 - i) * 128 : (rows - i) * 128, :])
    return out
