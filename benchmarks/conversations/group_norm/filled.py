import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

GROUPS = 32
EPS = 1e-5


@nki.jit
def group_norm(x, gamma, beta):
    """x (N, G, C/G, HW), gamma and beta (G, C/G) -> the same shape as x; four images on the partitions."""
    images, groups, cg, hw = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, result = x.reshape((images * groups, cg * hw)), out.reshape((images * groups, cg * hw))
    g = nl.ndarray((nl.par_dim(128), cg), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((nl.par_dim(128), cg), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(128 // groups):
        nisa.dma_copy(dst=g[nl.ds(k * groups, groups), 0:cg], src=gamma[:, :])
        nisa.dma_copy(dst=b[nl.ds(k * groups, groups), 0:cg], src=beta[:, :])
    for t in nl.affine_range(images * groups // 128):
        tile = nl.load(rows[nl.ds(t * 128, 128), :])
        mean = nl.multiply(nl.sum(tile, axis=1, keepdims=True), 1.0 / (cg * hw))
        centred = nl.subtract(tile, mean)
        var = nl.multiply(nl.sum(nl.square(centred), axis=1, keepdims=True), 1.0 / (cg * hw))
        rstd = nl.rsqrt(nl.add(var, EPS))
        y = nl.ndarray((nl.par_dim(128), cg * hw), dtype=nl.float32, buffer=nl.sbuf)
        for c in nl.affine_range(cg):
            span = nl.ds(c * hw, hw)
            normed = nl.multiply(centred[:, span], rstd)
            y[:, span] = nl.add(nl.multiply(normed, g[:, nl.ds(c, 1)]), b[:, nl.ds(c, 1)])
        nl.store(result[nl.ds(t * 128, 128), :], value=y)
    return out
