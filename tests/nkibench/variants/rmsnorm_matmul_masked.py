"""mgrid, a masked tail of columns, nl.transpose with transpose_x, the mean by loop_reduce."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    m_tiles, tile_m, k_size = x.shape
    k_tiles, tile_k, n_size = w.shape
    tile_n = 320
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    i_x = nl.mgrid[0:tile_m, 0:tile_k]
    i_w = nl.mgrid[0:tile_k, 0:tile_n]
    i_y = nl.mgrid[0:tile_m, 0:tile_n]
    for m in nl.affine_range(m_tiles):
        x_rows = nl.ndarray((nl.par_dim(tile_m), k_size), dtype=nl.float32, buffer=nl.sbuf)
        mean = nl.zeros((nl.par_dim(tile_m), 1), dtype=nl.float32, buffer=nl.sbuf)
        for k in nl.affine_range(k_tiles):
            x_tile = nl.load(x[m, i_x.p, k * tile_k + i_x.x])
            x_rows[i_x.p, k * tile_k + i_x.x] = x_tile
            part = nl.mean(nl.square(x_tile), axis=[1], keepdims=True)
            mean = nl.loop_reduce(part, op=nl.add, loop_indices=[k], dtype=nl.float32)
        rms = nl.sqrt(nl.multiply(mean, 1.0 / k_tiles))

        for n in nl.affine_range((n_size + tile_n - 1) // tile_n):
            inside_w = n * tile_n + i_w.x < n_size
            inside_y = n * tile_n + i_y.x < n_size
            y_sum = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                x_tile = nl.divide(x_rows[i_x.p, k * tile_k + i_x.x], rms)
                x_turned = nl.copy(nl.transpose(x_tile))
                w_tile = nl.load(w[k, i_w.p, n * tile_n + i_w.x], mask=inside_w)
                y_sum[i_y.p, i_y.x] += nl.matmul(x_turned, w_tile, transpose_x=True)
            nl.store(result[m, i_y.p, n * tile_n + i_y.x], value=y_sum[i_y.p, i_y.x], mask=inside_y)
    return result
