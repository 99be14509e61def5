"""Batched matrix product; K = 64 fits one tile, so no sum over tiles is needed."""

import nki
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    """lhs (B, M, K), rhs (B, K, N) -> lhs @ rhs as (B, M / 128, 128, N)."""
    batches, m_size, k_size = lhs.shape
    n_size = rhs.shape[2]
    tile_m = nl.tile_size.gemm_stationary_fmax
    tile_n = min(nl.tile_size.gemm_moving_fmax, n_size)
    assert k_size <= nl.tile_size.pmax and m_size % tile_m == 0 and n_size % tile_n == 0

    result = nl.ndarray(
        (batches, m_size // tile_m, tile_m, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm
    )
    for batch in nl.affine_range(batches):
        for m in nl.affine_range(m_size // tile_m):
            lhs_tile = nl.load(lhs[batch, m * tile_m : (m + 1) * tile_m, :])
            for n in nl.affine_range(n_size // tile_n):
                rhs_tile = nl.load(rhs[batch, :, n * tile_n : (n + 1) * tile_n])
                result_tile = nl.copy(nl.matmul(lhs_tile, rhs_tile))
                nl.store(result[batch, m, :, n * tile_n : (n + 1) * tile_n], result_tile)
    return result
