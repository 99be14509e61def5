"""Residual addition and RMS normalisation of 128 rows at a time, then the product by tiles."""

import nki
import nki.language as nl
import nki.isa as nisa


@nki.jit
def kernel(x, w, eps, z, g):
    """x, z (M, K), w (K, N), eps a number, g (K,) -> (y / rms(y) * g) @ w (M, N), y = x + z."""
    m_size, k_size = x.shape
    n_size = w.shape[1]
    tile_m = nl.tile_size.pmax
    tile_k = nl.tile_size.pmax
    tile_n = min(nl.tile_size.gemm_moving_fmax, n_size)
    assert m_size % tile_m == 0 and k_size % tile_k == 0 and n_size % tile_n == 0

    result = nl.ndarray((m_size, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    gain = nl.load(g.reshape((1, k_size)))
    gain_rows = nl.broadcast_to(gain, (tile_m, k_size))

    for m in nl.affine_range(m_size // tile_m):
        x_tile = nl.load(x[nl.ds(m * tile_m, tile_m), :])
        z_tile = nl.load(z[nl.ds(m * tile_m, tile_m), :])
        y_tile = nl.add(x_tile, z_tile)

        mean = nl.multiply(nl.sum(nl.square(y_tile), axis=1, keepdims=True), 1.0 / k_size)
        inverse_rms = nl.rsqrt(nl.add(mean, eps))
        tile = nl.ndarray(y_tile.shape, dtype=y_tile.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=y_tile, op0=nl.multiply, operand0=inverse_rms)
        normalized = nl.multiply(tile, gain_rows)

        for n in nl.affine_range(n_size // tile_n):
            accumulator = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // tile_k):
                w_tile = nl.load(w[nl.ds(k * tile_k, tile_k), nl.ds(n * tile_n, tile_n)])
                normalized_tile = normalized[:, nl.ds(k * tile_k, tile_k)]
                turned = nl.ndarray(
                    (normalized_tile.shape[1], normalized_tile.shape[0]),
                    dtype=normalized_tile.dtype,
                    buffer=nl.psum,
                )
                nisa.nc_transpose(dst=turned, data=normalized_tile)
                stationary = nl.copy(turned)
                nisa.nc_matmul(dst=accumulator[:, :], stationary=stationary, moving=w_tile)
            result_tile = nl.copy(accumulator)
            nl.store(result[nl.ds(m * tile_m, tile_m), nl.ds(n * tile_n, tile_n)], result_tile)
    return result
