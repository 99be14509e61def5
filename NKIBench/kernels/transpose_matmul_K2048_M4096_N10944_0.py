"""lhs.T @ rhs by tiles of 128 x 512, summed over K in PSUM; the last tile of columns is masked."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    """lhs (128, K / 128, M), rhs (128, K / 128, N) -> lhs.T @ rhs as (M / 128, 128, N)."""
    tile_k, k_tiles, m_size = lhs.shape
    n_size = rhs.shape[2]
    tile_m = nl.tile_size.gemm_stationary_fmax
    tile_n = nl.tile_size.gemm_moving_fmax
    assert m_size % tile_m == 0

    result = nl.ndarray((m_size // tile_m, tile_m, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    i_k = nl.arange(tile_k)[:, None]
    i_m = nl.arange(tile_m)
    i_n = nl.arange(tile_n)[None, :]
    for m in nl.affine_range(m_size // tile_m):
        for n in nl.affine_range((n_size + tile_n - 1) // tile_n):
            column = n * tile_n + i_n
            inside = column < n_size
            accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                lhs_tile = nl.load(lhs[i_k, k, m * tile_m + i_m[None, :]])
                rhs_tile = nl.load(rhs[i_k, k, column], mask=inside)
                accumulator += nisa.nc_matmul(lhs_tile, rhs_tile)
            result_tile = nl.copy(accumulator)
            nl.store(result[m, i_m[:, None], column], value=result_tile, mask=inside)
    return result
