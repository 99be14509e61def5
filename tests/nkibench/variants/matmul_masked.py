"""nl.matmul on mgrid tiles, Python's range, and a tail of columns cut by masks."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    m_tiles, tile_m, k_tiles, tile_k = lhs.shape
    n_size = rhs.shape[2]
    tile_n = 384
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    i_lhs = nl.mgrid[0:tile_m, 0:tile_k]
    i_rhs = nl.mgrid[0:tile_k, 0:tile_n]
    i_res = nl.mgrid[0:tile_m, 0:tile_n]
    for m in range(m_tiles):
        for n in range(-(-n_size // tile_n)):
            total = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in range(k_tiles):
                lhs_tile = nl.load(lhs[m, i_lhs.p, k, i_lhs.x])
                rhs_tile = nl.load(
                    rhs[k, i_rhs.p, n * tile_n + i_rhs.x], mask=(n * tile_n + i_rhs.x < n_size)
                )
                total[i_res.p, i_res.x] += nl.matmul(lhs_tile, rhs_tile)
            result_tile = nl.ndarray((tile_m, tile_n), dtype=lhs.dtype, buffer=nl.sbuf)
            result_tile[i_res.p, i_res.x] = nl.copy(total)
            nl.store(
                result[m, i_res.p, n * tile_n + i_res.x],
                value=result_tile[i_res.p, i_res.x],
                mask=(n * tile_n + i_res.x < n_size),
            )
    return result
