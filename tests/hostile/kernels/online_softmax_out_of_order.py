# reference: softmax
# verdict: refused
# Right in every order, one iteration at a time; at the same time they race for the sum.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        peak = nl.full((1, nl.par_dim(128), 1), -3e38, dtype=nl.float32, buffer=nl.sbuf)
        total = nl.zeros((1, nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(x.shape[1] // 256):
            tile = nl.load(x[i * 128 : (i + 1) * 128, j * 256 : (j + 1) * 256])
            new = nl.maximum(peak[(j + 1) // 8], nl.max(tile, axis=1, keepdims=True))
            kept = nl.multiply(total[(j + 1) // 8], nl.exp(nl.subtract(peak[(j + 1) // 8], new)))
            own = nl.sum(nl.exp(nl.subtract(tile, new)), axis=1, keepdims=True)
            total[(j + 1) // 8] = nl.add(kept, own)
            peak[(j + 1) // 8] = nl.copy(new)
        scale = nl.reciprocal(total[0])
        whole = nl.load(x[i * 128 : (i + 1) * 128, :])
        y = nl.multiply(nl.exp(nl.subtract(whole, peak[0])), scale)
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
