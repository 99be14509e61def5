"""A grid of row tiles and column tiles; each program computes one tile, with slices."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def one_tile(x, w):
    m_tiles, tile_m, _ = x.shape
    k_tiles, tile_k, n_size = w.shape
    tile_n = n_size // nl.num_programs(1)
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    m = nl.program_id(axis=0)
    columns = nl.ds(nl.program_id(axis=1) * tile_n, tile_n)

    x_rows = nl.load(x[m])
    scale = nl.rsqrt(nl.mean(x_rows * x_rows, axis=1, keepdims=True))
    x_rows *= scale
    accumulator = nl.zeros((nl.par_dim(tile_m), tile_n), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(k_tiles):
        accumulator[...] += nl.matmul(
            x_rows[:, nl.ds(k * tile_k, tile_k)], nl.load(w[k, :, columns])
        )
    nl.store(result[m, :, columns], nl.copy(accumulator, dtype=result.dtype))
    return result


kernel = one_tile[2, 4]
