"""128 rows of the product plus the residual are gathered in SBUF, then normalised at once."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w, eps, z, g):
    """x (M, K), w (K, N), eps a number, z (M, N), g (N,) -> y / rms(y) * g (M, N), y = x @ w + z."""
    m_size, k_size = x.shape
    n_size = w.shape[1]
    tile_m = nl.tile_size.pmax
    tile_k = nl.tile_size.pmax
    tile_n = min(nl.tile_size.gemm_moving_fmax, n_size)
    assert m_size % tile_m == 0 and k_size % tile_k == 0 and n_size % tile_n == 0

    result = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    i_x = nl.mgrid[0:tile_m, 0:tile_k]
    i_w = nl.mgrid[0:tile_k, 0:tile_n]
    i_y = nl.mgrid[0:tile_m, 0:tile_n]
    i_row = nl.mgrid[0:tile_m, 0:n_size]
    i_gain = nl.mgrid[0:1, 0:n_size]

    gain = nl.load(g.reshape((1, n_size))[i_gain.p, i_gain.x])
    gain_rows = gain.broadcast_to((tile_m, n_size))

    for m in nl.affine_range(m_size // tile_m):
        y_rows = nl.ndarray((nl.par_dim(tile_m), n_size), dtype=nl.float32, buffer=nl.sbuf)
        for n in nl.affine_range(n_size // tile_n):
            product = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                x_tile = nl.load(x[m * tile_m + i_x.p, k * tile_k + i_x.x])
                w_tile = nl.load(w[k * tile_k + i_w.p, n * tile_n + i_w.x])
                product[i_y.p, i_y.x] += nl.matmul(x_tile, w_tile)
            z_tile = nl.load(z[m * tile_m + i_y.p, n * tile_n + i_y.x])
            y_rows[i_y.p, n * tile_n + i_y.x] = nl.add(product, z_tile)

        mean = nl.multiply(nl.sum(nl.square(y_rows), axis=1, keepdims=True), 1.0 / n_size)
        inverse_rms = nl.rsqrt(nl.add(mean, eps))
        normalized = nl.multiply(nl.multiply(y_rows, gain_rows), inverse_rms)
        nl.store(result[m * tile_m + i_row.p, i_row.x], value=normalized)
    return result
