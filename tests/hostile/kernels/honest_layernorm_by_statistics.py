# reference: layernorm
# verdict: correct
# Another way to the same: the Vector engine's statistics.

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, gain, bias, eps):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    g = nl.load(gain).broadcast_to((128, x.shape[1]))
    b = nl.load(bias).broadcast_to((128, x.shape[1]))
    for i in nl.affine_range(x.shape[0] // 128):
        tile = nl.load(x[i * 128 : (i + 1) * 128, :])
        statistics = nisa.bn_aggr(nisa.bn_stats(tile))
        centred = nl.subtract(tile, statistics[:, 0:1])
        y = nl.multiply(centred, nl.rsqrt(nl.add(statistics[:, 1:2], eps)))
        nl.store(out[i * 128 : (i + 1) * 128, :], nl.add(nl.multiply(y, g), b))
    return out
