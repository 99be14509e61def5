"""RMS normalisation of 128 rows at a time, each block multiplied by the weight tile by tile."""

import nki
import nki.language as nl
import nki.isa as nisa


@nki.jit
def kernel(x, w):
    """x (M / 128, 128, K), w (K / 128, 128, N) -> (x / rms(x)) @ w as (M / 128, 128, N)."""
    m_tiles, tile_m, k = x.shape
    k_tiles, tile_k, n = w.shape
    tile_n = min(nl.tile_size.gemm_moving_fmax, n)
    assert k == k_tiles * tile_k and n % tile_n == 0

    result = nl.ndarray((m_tiles, tile_m, n), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_tiles):
        x_tile = nl.load(x[m, 0:tile_m, 0:k])

        square = nl.square(x_tile)
        mean = nl.multiply(nl.sum(square, axis=1, keepdims=True), 1.0 / k)
        normalized = nl.ndarray(x_tile.shape, dtype=x_tile.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=normalized, data=x_tile, op0=nl.multiply, operand0=nl.rsqrt(mean))

        for j in nl.affine_range(n // tile_n):
            accumulator = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for t in nl.affine_range(k_tiles):
                w_tile = nl.load(w[t, 0:tile_k, j * tile_n : (j + 1) * tile_n])
                normalized_tile = normalized[0:tile_m, t * tile_k : (t + 1) * tile_k]
                turned = nl.ndarray(
                    (normalized_tile.shape[1], normalized_tile.shape[0]),
                    dtype=normalized_tile.dtype,
                    buffer=nl.psum,
                )
                nisa.nc_transpose(dst=turned, data=normalized_tile)
                stationary = nl.copy(turned)
                nisa.nc_matmul(dst=accumulator, stationary=stationary, moving=w_tile)
            y_tile = nl.copy(accumulator)
            nl.store(result[m, 0:tile_m, j * tile_n : (j + 1) * tile_n], y_tile)
    return result
