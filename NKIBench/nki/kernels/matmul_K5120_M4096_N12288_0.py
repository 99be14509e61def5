"""Matrix product by tiles: 128 x 128 of lhs times 128 x 512 of rhs, summed over K in PSUM."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    """lhs (M / 128, 128, K / 128, 128), rhs (K / 128, 128, N) -> lhs @ rhs as (M / 128, 128, N)."""
    m_tiles, tile_m, k_tiles, tile_k = lhs.shape
    n = rhs.shape[2]
    tile_n = min(nl.tile_size.gemm_moving_fmax, n)
    assert n % tile_n == 0

    result = nl.ndarray((m_tiles, tile_m, n), dtype=lhs.dtype, buffer=nl.shared_hbm)

    # Partition and free indices of the lhs, rhs and result tiles.

    for m in nl.affine_range(m_tiles):
        for j in nl.affine_range(n // tile_n):
            accumulator = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                lhs_tile = nl.load(lhs[m, 0 : tile_m, k, 0 : tile_k])
                rhs_tile = nl.load(rhs[k, 0 : tile_k, j * tile_n : j * tile_n + tile_n])
                # The tensor engine contracts over partitions, so lhs must have K there.
                turned = nl.ndarray(
                    (lhs_tile.shape[1], lhs_tile.shape[0]), dtype=lhs_tile.dtype, buffer=nl.psum
                )
                nisa.nc_transpose(dst=turned, data=lhs_tile)
                lhs_transposed = nl.copy(turned)
                nisa.nc_matmul(
                    dst=accumulator[0 : tile_m, 0 : tile_n],
                    stationary=lhs_transposed,
                    moving=rhs_tile,
                )
            result_tile = nl.copy(accumulator)
            nl.store(result[m, 0 : tile_m, j * tile_n : j * tile_n + tile_n], result_tile)
    return result
