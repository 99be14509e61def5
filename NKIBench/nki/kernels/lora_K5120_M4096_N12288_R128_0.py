"""For 128 rows at a time: transpose x once, then add the adapter to the same sum in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w, a, b):
    """x @ w + (x @ a) @ b as (M / 512, 4, 128, N / 128, 128).

    x (M / 512, 4, 128, K / 128, 128), w (K / 128, 128, N), a (K / 128, 128, R), b (R, N).
    """
    blocks, tiles, tile_m, k_tiles, tile_k = x.shape
    rank, n_size = b.shape
    tile_n = min(nl.tile_size.gemm_moving_fmax, n_size)
    columns = 128
    assert n_size % tile_n == 0 and tile_n % columns == 0

    result = nl.ndarray(
        (blocks, tiles, tile_m, n_size // columns, columns), dtype=x.dtype, buffer=nl.shared_hbm
    )
    # A result tile of tile_n columns lies in HBM as tile_n / 128 groups of 128.

    for block in nl.affine_range(blocks):
        for tile in nl.affine_range(tiles):
            x_transposed = nl.ndarray((tile_k, k_tiles, tile_m), dtype=x.dtype)
            # (x @ a).T comes out directly when a is the stationary operand.
            low_rank_sum = nl.ndarray((rank, tile_m), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                x_tile = nl.load(x[block, tile, :, k, :])
                a_tile = nl.load(a[k, :, :])
                turned = nl.ndarray(
                    (x_tile.shape[1], x_tile.shape[0]), dtype=x_tile.dtype, buffer=nl.psum
                )
                nisa.nc_transpose(dst=turned, data=x_tile)
                x_transposed[:, k, :] = nl.copy(turned)
                nisa.nc_matmul(dst=low_rank_sum, stationary=a_tile, moving=x_transposed[:, k, :])
            low_rank = nl.copy(low_rank_sum)

            for n in nl.affine_range(n_size // tile_n):
                accumulator = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(k_tiles):
                    w_tile = nl.load(w[k, :, n * tile_n : (n + 1) * tile_n])
                    nisa.nc_matmul(dst=accumulator, stationary=x_transposed[:, k, :], moving=w_tile)
                b_tile = nl.load(b[:, n * tile_n : (n + 1) * tile_n])
                nisa.nc_matmul(dst=accumulator, stationary=low_rank, moving=b_tile)

                y_tile = nl.copy(accumulator)
                nl.store(
                    result[
                        block,
                        tile,
                        0 : tile_m,
                        n * (tile_n // columns) : n * (tile_n // columns) + tile_n // columns,
                        0 : columns,
                    ],
                    y_tile[0 : tile_m, 0 : (tile_n // columns) * columns].reshape_dim(
                        1, (tile_n // columns, columns)
                    ),
                )
    return result
