# reference: rmsnorm
# verdict: wrong_numbers
# One multiplication less.

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, eps, g):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    gain = nl.load(g).broadcast_to((128, x.shape[1]))
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        mean = nl.mean(nl.square(tile), axis=1)
        y = nl.multiply(tile, nl.rsqrt(nl.add(mean, eps)))
        nl.store(out[i * 128 : (i + 1) * 128, :], y)
    return out
