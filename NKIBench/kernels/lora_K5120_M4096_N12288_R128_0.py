"""For 128 rows at a time: transpose x once, then add the adapter to the same sum in PSUM."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


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
    i_p = nl.arange(tile_m)[:, None, None]
    i_group = nl.arange(tile_n // columns)[None, :, None]
    i_column = nl.arange(columns)[None, None, :]

    for block in nl.affine_range(blocks):
        for tile in nl.affine_range(tiles):
            x_transposed = nl.ndarray((k_tiles, nl.par_dim(tile_k), tile_m), dtype=x.dtype)
            # (x @ a).T comes out directly when a is the stationary operand.
            low_rank_sum = nl.zeros((rank, tile_m), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                x_tile = nl.load(x[block, tile, :, k, :])
                a_tile = nl.load(a[k, :, :])
                x_transposed[k, :, :] = nl.copy(nisa.nc_transpose(x_tile))
                low_rank_sum += nisa.nc_matmul(a_tile, x_transposed[k, :, :])
            low_rank = nl.copy(low_rank_sum)

            for n in nl.affine_range(n_size // tile_n):
                accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(k_tiles):
                    w_tile = nl.load(w[k, :, n * tile_n : (n + 1) * tile_n])
                    accumulator += nisa.nc_matmul(x_transposed[k, :, :], w_tile)
                b_tile = nl.load(b[:, n * tile_n : (n + 1) * tile_n])
                accumulator += nisa.nc_matmul(low_rank, b_tile)

                y_tile = nl.copy(accumulator)
                group = n * (tile_n // columns) + i_group
                nl.store(
                    result[block, tile, i_p, group, i_column],
                    value=y_tile[i_p, i_group * columns + i_column],
                )
    return result
