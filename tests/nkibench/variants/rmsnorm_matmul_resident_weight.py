"""The weight stays in SBUF; the norm is applied to the product, where it is one scalar a row."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(x, w):
    m_tiles, tile_m, k_size = x.shape
    k_tiles, tile_k, n_size = w.shape
    tile_n = 512
    n_tiles = n_size // tile_n
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=x.dtype, buffer=nl.shared_hbm)
    i_m, i_k = nl.arange(tile_m)[:, None], nl.arange(tile_k)[None, :]
    i_kp, i_n = nl.arange(tile_k)[:, None], nl.arange(n_size)[None, :]
    i_t, i_row = nl.arange(tile_n)[None, :], nl.arange(k_size)[None, :]
    i_kp2, i_m2 = nl.arange(tile_k)[:, None], nl.arange(tile_m)[None, :]

    weight = nl.ndarray((k_tiles, nl.par_dim(tile_k), n_size), dtype=w.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(k_tiles):
        weight[k, i_kp, i_n] = nl.load(w[k, i_kp, i_n])

    for m in nl.affine_range(m_tiles):
        x_rows = nl.load(x[m, i_m, i_row])
        square = nisa.activation(op=np.square, data=x_rows)
        square_sum = nisa.tensor_reduce(np.add, data=square, axis=[1])
        inverse_rms = nisa.activation(op=nl.rsqrt, data=square_sum, scale=1.0 / k_size)

        transposed = nl.ndarray(
            (k_tiles, nl.par_dim(tile_k), tile_m), dtype=x.dtype, buffer=nl.sbuf
        )
        for k in nl.affine_range(k_tiles):
            turned = nisa.nc_transpose(x_rows[i_m, k * tile_k + i_k])
            transposed[k, i_kp2, i_m2] = nisa.tensor_copy(turned, engine=nisa.vector_engine)

        sums = nl.zeros((n_tiles, nl.par_dim(tile_m), tile_n), dtype=nl.float32, buffer=nl.psum)
        for n in nl.affine_range(n_tiles):
            for k in nl.affine_range(k_tiles):
                sums[n, i_m, i_t] += nisa.nc_matmul(
                    stationary=transposed[k, i_kp2, i_m2], moving=weight[k, i_kp, n * tile_n + i_t]
                )
            y_tile = nisa.tensor_scalar(
                data=sums[n, i_m, i_t], op0=nl.multiply, operand0=inverse_rms
            )
            nl.store(result[m, i_m, n * tile_n + i_t], value=y_tile)
    return result
