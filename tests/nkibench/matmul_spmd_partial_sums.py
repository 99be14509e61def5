"""One program a row tile; K in blocks whose partial sums are added in SBUF, in order."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def row_tile(lhs, rhs):
    m_tiles, tile_m, k_tiles, tile_k = lhs.shape
    n_size = rhs.shape[2]
    tile_n, block_k = 256, 2
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    m = nl.program_id(0)

    turned = nl.ndarray((k_tiles, nl.par_dim(tile_k), tile_m), dtype=lhs.dtype)
    for k in nl.affine_range(k_tiles):
        turned[k] = nl.load_transpose2d(lhs[m, :, k, :])

    total = nl.zeros((nl.par_dim(tile_m), n_size), dtype=nl.float32, buffer=nl.sbuf)
    for kb in nl.sequential_range(k_tiles // block_k):
        for n in nl.affine_range(n_size // tile_n):
            columns = nl.ds(n * tile_n, tile_n)
            partial = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for ki in nl.static_range(block_k):
                k = kb * block_k + ki
                partial += nisa.nc_matmul(turned[k], nl.load(rhs[k, :, columns]))
            total[:, columns] = nl.add(total[:, columns], partial)
    nl.store(result[m], value=total)
    return result


kernel = row_tile[3]
