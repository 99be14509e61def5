"""lhs.T @ rhs by tiles of 128 x 512, summed over K in PSUM; the last tile of columns is masked."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    """lhs (128, K / 128, M), rhs (128, K / 128, N) -> lhs.T @ rhs as (M / 128, 128, N)."""
    tile_k, k_tiles, m_size = lhs.shape
    n_size = rhs.shape[2]
    tile_m = nl.tile_size.gemm_stationary_fmax
    tile_n = nl.tile_size.gemm_moving_fmax
    assert m_size % tile_m == 0

    result = nl.ndarray((m_size // tile_m, tile_m, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // tile_m):
        for n in nl.affine_range((n_size + tile_n - 1) // tile_n):
            accumulator = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                lhs_tile = nl.load(lhs[0 : tile_k, k, m * tile_m : m * tile_m + tile_m])
                rhs_tile = nl.load(
                    rhs[0 : tile_k, k, n * tile_n : min(n * tile_n + tile_n, n_size)]
                )
                nisa.nc_matmul(
                    dst=accumulator[:, 0 : rhs_tile.shape[1]], stationary=lhs_tile, moving=rhs_tile
                )
            result_tile = nl.copy(accumulator)
            place = result[m, 0 : tile_m, n * tile_n : min(n * tile_n + tile_n, n_size)]
            nl.store(place, result_tile[0 : place.shape[0], 0 : place.shape[1]])
    return result
