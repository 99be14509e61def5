"""The square and its sum in one activation, the mean in place, mixed nl and nisa, nl.full."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x, w):
    m_tiles, tile_m, k_size = x.shape
    k_tiles, tile_k, n_size = w.shape
    tile_n = nl.tile_size.gemm_moving_fmax
    result = nl.ndarray((m_tiles, nl.par_dim(tile_m), n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    for m in nl.sequential_range(m_tiles):
        x_rows = nl.load(x[m, 0:tile_m])
        square_sum = nl.full((tile_m, 1), 0.0, dtype=nl.float32)
        nisa.activation_reduce(
            op=nl.square, data=x_rows, reduce_op=nl.add, reduce_res=square_sum[:, 0:1]
        )
        square_sum *= 1.0 / k_size
        scale = nisa.activation(op=nl.rsqrt, data=square_sum)
        normalized = nisa.tensor_scalar(
            x_rows, nl.multiply, scale, engine=nisa.vector_engine, dtype=nl.float32
        )
        for n in nl.affine_range(n_size // tile_n):
            accumulator = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                rows = nl.copy(nl.transpose(normalized[0:tile_m, nl.ds(k * tile_k, tile_k)]))
                weight = nl.load(w[k, :, nl.ds(n * tile_n, tile_n)], dtype=nl.float32)
                accumulator[...] += nisa.nc_matmul(rows[...], weight[...])
            nl.store(result[m, :, nl.ds(n * tile_n, tile_n)], nisa.tensor_copy(accumulator))
    return result
