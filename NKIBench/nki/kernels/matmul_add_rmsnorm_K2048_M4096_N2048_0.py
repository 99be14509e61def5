"""128 rows of the product plus the residual are gathered in SBUF, then normalised at once."""

import nki
import nki.language as nl
import nki.isa as nisa


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

    gain = nl.load(g.reshape((1, n_size))[0 : 1, 0 : n_size])
    gain_rows = nl.broadcast_to(gain, (tile_m, n_size))

    for m in nl.affine_range(m_size // tile_m):
        y_rows = nl.ndarray((tile_m, n_size), dtype=nl.float32, buffer=nl.sbuf)
        for n in nl.affine_range(n_size // tile_n):
            product = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                x_tile = nl.load(
                    x[m * tile_m : m * tile_m + tile_m, k * tile_k : k * tile_k + tile_k]
                )
                w_tile = nl.load(
                    w[k * tile_k : k * tile_k + tile_k, n * tile_n : n * tile_n + tile_n]
                )
                turned = nl.ndarray(
                    (x_tile.shape[1], x_tile.shape[0]), dtype=x_tile.dtype, buffer=nl.psum
                )
                nisa.nc_transpose(dst=turned, data=x_tile)
                stationary = nl.copy(turned)
                nisa.nc_matmul(
                    dst=product[0 : tile_m, 0 : tile_n], stationary=stationary, moving=w_tile
                )
            z_tile = nl.load(z[m * tile_m : m * tile_m + tile_m, n * tile_n : n * tile_n + tile_n])
            y_rows[0 : tile_m, n * tile_n : n * tile_n + tile_n] = nl.add(product, z_tile)

        mean = nl.multiply(nl.sum(nl.square(y_rows), axis=1, keepdims=True), 1.0 / n_size)
        inverse_rms = nl.rsqrt(nl.add(mean, eps))
        operand = nl.multiply(y_rows, gain_rows)
        normalized = nl.ndarray(operand.shape, dtype=operand.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=normalized, data=operand, op0=nl.multiply, operand0=inverse_rms)
        nl.store(result[m * tile_m : m * tile_m + tile_m, 0 : n_size], normalized)
    return result
