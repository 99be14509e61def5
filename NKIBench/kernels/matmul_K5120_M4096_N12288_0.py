"""Matrix product by tiles: 128 x 128 of lhs times 128 x 512 of rhs, summed over K in PSUM."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    """lhs (M / 128, 128, K / 128, 128), rhs (K / 128, 128, N) -> lhs @ rhs as (M / 128, 128, N)."""
    m_tiles, tile_m, k_tiles, tile_k = lhs.shape
    n = rhs.shape[2]
    tile_n = min(nl.tile_size.gemm_moving_fmax, n)
    assert n % tile_n == 0

    result = nl.ndarray((m_tiles, tile_m, n), dtype=lhs.dtype, buffer=nl.shared_hbm)

    # Partition and free indices of the lhs, rhs and result tiles.
    i_lhs_p, i_lhs_f = nl.arange(tile_m)[:, None], nl.arange(tile_k)[None, :]
    i_rhs_p, i_rhs_f = nl.arange(tile_k)[:, None], nl.arange(tile_n)[None, :]
    i_res_p, i_res_f = nl.arange(tile_m)[:, None], nl.arange(tile_n)[None, :]

    for m in nl.affine_range(m_tiles):
        for j in nl.affine_range(n // tile_n):
            accumulator = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                lhs_tile = nl.load(lhs[m, i_lhs_p, k, i_lhs_f])
                rhs_tile = nl.load(rhs[k, i_rhs_p, j * tile_n + i_rhs_f])
                # The tensor engine contracts over partitions, so lhs must have K there.
                lhs_transposed = nl.copy(nisa.nc_transpose(lhs_tile))
                accumulator[i_res_p, i_res_f] += nisa.nc_matmul(lhs_transposed, rhs_tile)
            result_tile = nl.copy(accumulator)
            nl.store(result[m, i_res_p, j * tile_n + i_res_f], value=result_tile)
    return result
