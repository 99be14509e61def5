"""Blocks of two row tiles and two column tiles share their operands; sums in a PSUM block tensor."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(lhs, rhs):
    m_tiles, tile_m, k_tiles, tile_k = lhs.shape
    n_size = rhs.shape[2]
    tile_n, block_m, block_n = 512, 2, 2
    wide = block_n * tile_n
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for mb in nl.affine_range(m_tiles // block_m):
        turned = nl.ndarray(
            (block_m, k_tiles, nl.par_dim(tile_k), tile_m), dtype=lhs.dtype, buffer=nl.sbuf
        )
        for mi in nl.affine_range(block_m):
            lhs_rows = nl.load(lhs[mb * block_m + mi])
            for k in nl.affine_range(k_tiles):
                turned[mi, k] = nl.copy(
                    nisa.nc_transpose(lhs_rows[:, k, :], engine=nisa.tensor_engine)
                )
        for nb in nl.affine_range(n_size // wide):
            sums = nl.zeros(
                (block_m, block_n, nl.par_dim(tile_m), tile_n), dtype=nl.float32, buffer=nl.psum
            )
            for k in nl.affine_range(k_tiles):
                rhs_tile = nl.load(rhs[k, :, nb * wide : (nb + 1) * wide])
                for mi in nl.affine_range(block_m):
                    for ni in nl.affine_range(block_n):
                        sums[mi, ni, :, :] += nisa.nc_matmul(
                            turned[mi, k], rhs_tile[:, ni * tile_n : (ni + 1) * tile_n]
                        )
            for mi in nl.affine_range(block_m):
                packed = nl.ndarray((nl.par_dim(tile_m), wide), dtype=lhs.dtype, buffer=nl.sbuf)
                for ni in nl.affine_range(block_n):
                    packed[:, ni * tile_n : (ni + 1) * tile_n] = nl.copy(sums[mi, ni])
                nl.store(result[mb * block_m + mi, :, nb * wide : (nb + 1) * wide], value=packed)
    return result
