"""Scores of 128 rows are gathered in SBUF, then softmax runs over the whole rows."""

import nki
import nki.language as nl
import nki.isa as nisa


@nki.jit
def kernel(lhs, rhs):
    """lhs (B, M, K), rhs (B, K, N) -> softmax(lhs @ rhs) as (B, M / 128, 128, N)."""
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
            scores = nl.ndarray((tile_m, n_size), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // tile_n):
                rhs_tile = nl.load(rhs[batch, :, n * tile_n : (n + 1) * tile_n])
                scores[:, n * tile_n : (n + 1) * tile_n] = nl.copy(nl.matmul(lhs_tile, rhs_tile))

            row_max = nl.max(scores, axis=1, keepdims=True)
            tile = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=tile, data=scores, op0=nl.subtract, operand0=row_max)
            weights = nl.exp(tile)
            row_sum = nl.sum(weights, axis=1, keepdims=True)
            tile_2 = nl.ndarray(weights.shape, dtype=weights.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=tile_2, data=weights, op0=nl.divide, operand0=row_sum)
            nl.store(result[batch, m, :, :], tile_2)
    return result
