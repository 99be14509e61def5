# reference: softmax
# verdict: wrong_numbers
# A mask that is off by one leaves the first column out of the maximum.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    r, c = nl.mgrid[0:128, 0 : x.shape[1]]
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 + r, c])
        peak = nl.max(tile[r, c], axis=1, keepdims=True, mask=(c > 0))
        e = nl.exp(nl.subtract(tile, peak))
        nl.store(out[i * 128 + r, c], nl.divide(e, nl.sum(e, axis=1, keepdims=True)))
    return out
