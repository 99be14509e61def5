"""One AdamW step, one 128 x 512 tile at a time; the last tile of rows is masked."""

import nki
import nki.language as nl


@nki.jit
def kernel(theta, g, m, v):
    """theta, g, m, v (rows, N) -> the updated theta (rows, N)."""
    rows, n = theta.shape
    tile_m = nl.tile_size.pmax
    tile_n = min(512, n)
    assert n % tile_n == 0

    result = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + tile_m - 1) // tile_m):
        for j in nl.affine_range(n // tile_n):
            theta_tile = nl.load(
                theta[i * tile_m : min(i * tile_m + tile_m, rows), j * tile_n : j * tile_n + tile_n]
            )
            g_tile = nl.load(
                g[i * tile_m : min(i * tile_m + tile_m, rows), j * tile_n : j * tile_n + tile_n]
            )
            m_tile = nl.load(
                m[i * tile_m : min(i * tile_m + tile_m, rows), j * tile_n : j * tile_n + tile_n]
            )
            v_tile = nl.load(
                v[i * tile_m : min(i * tile_m + tile_m, rows), j * tile_n : j * tile_n + tile_n]
            )

            first_moment = nl.add(nl.multiply(m_tile, 0.9), nl.multiply(g_tile, 0.1))
            g_square = nl.square(g_tile)
            second_moment = nl.add(nl.multiply(v_tile, 0.999), nl.multiply(g_square, 0.001))
            root = nl.sqrt(nl.multiply(second_moment, 1000.0))
            step = nl.divide(nl.multiply(first_moment, 0.01), nl.add(root, 1e-8))
            decayed = nl.subtract(theta_tile, nl.multiply(theta_tile, 1e-5))

            nl.store(
                result[
                    i * tile_m : min(i * tile_m + tile_m, rows), j * tile_n : j * tile_n + tile_n
                ],
                nl.subtract(decayed, step),
            )
    return result
