import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

GROUPS = 32
EPS = 1e-5


@nki.jit
def group_norm(x, gamma, beta):
    """x (N, G, C/G, HW), gamma and beta (G, C/G) -> the same shape as x; one pass for both moments, one
    for the result, whose channels Scalar and Vector share."""
    images, groups, cg, hw = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, result = x.reshape((images * groups, cg * hw)), out.reshape((images * groups, cg * hw))
    g = nl.ndarray((nl.par_dim(128), cg), dtype=nl.float32, buffer=nl.sbuf)
    b = nl.ndarray((nl.par_dim(128), cg), dtype=nl.float32, buffer=nl.sbuf)
    for k in nl.affine_range(128 // groups):
        nisa.dma_copy(dst=g[nl.ds(k * groups, groups), 0:cg], src=gamma[:, :])
        nisa.dma_copy(dst=b[nl.ds(k * groups, groups), 0:cg], src=beta[:, :])
    parts = cg * hw // 512
    for t in nl.affine_range(images * groups // 128):
        tile = nl.load(rows[nl.ds(t * 128, 128), :])
        stats = nl.ndarray((nl.par_dim(128), 6 * parts), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(parts):
            stats[:, nl.ds(k * 6, 6)] = nisa.bn_stats(tile[:, nl.ds(k * 512, 512)])
        moments = nisa.bn_aggr(stats)
        rstd = nl.rsqrt(nl.add(moments[:, 1:2], EPS))
        scale = nisa.tensor_scalar(g, nl.multiply, rstd)
        shift = nl.subtract(b, nisa.tensor_scalar(scale, nl.multiply, moments[:, 0:1]))
        y = nl.ndarray((nl.par_dim(128), cg * hw), dtype=nl.float32, buffer=nl.sbuf)
        for c in nl.static_range(cg):
            span = nl.ds(c * hw, hw)
            if c % 4 == 0:
                y[:, span] = nisa.tensor_scalar(
                    tile[:, span], nl.multiply, scale[:, c:c + 1], False, nl.add, shift[:, c:c + 1]
                )
            else:
                y[:, span] = nisa.activation(
                    nl.copy, tile[:, span], scale=scale[:, c:c + 1], bias=shift[:, c:c + 1]
                )
        nl.store(result[nl.ds(t * 128, 128), :], value=y)
    return out
