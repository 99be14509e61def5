"""Transposes as products with a constant identity, lazily initialised sums, explicit dtypes."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def kernel(lhs, rhs):
    m_tiles, tile_m, k_tiles, tile_k = lhs.shape
    n_size = rhs.shape[2]
    tile_n = 512
    n_tiles = n_size // tile_n
    result = nl.ndarray((m_tiles, tile_m, n_size), dtype=np.float32, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(128)[None, :]
    i_n = nl.arange(tile_n)[None, :]

    constant = nl.shared_constant(np.identity(128, dtype=np.float32))
    identity = nl.ndarray((nl.par_dim(128), 128), dtype=np.float32, name="identity", buffer=nl.sbuf)
    identity[i_p, i_f] = nl.load(constant[i_p, i_f], dtype=np.float32, mask=None)

    turned = nl.ndarray(
        (m_tiles, k_tiles, nl.par_dim(tile_k), tile_m), dtype=np.float32, name="", buffer=nl.sbuf
    )
    turning = nl.zeros(
        (m_tiles, k_tiles, nl.par_dim(tile_k), tile_m),
        dtype=np.float32,
        name="",
        buffer=nl.psum,
        lazy_initialization=True,
    )
    sums = nl.zeros(
        (m_tiles, n_tiles, nl.par_dim(tile_m), tile_n),
        dtype=np.float32,
        name="sums.1",
        buffer=nl.psum,
        lazy_initialization=True,
    )
    for m in nl.affine_range(m_tiles):
        for k in nl.affine_range(k_tiles):
            tile = nl.load(lhs[m, i_p, k, i_f], dtype=np.float32, mask=None)
            turning[m, k, i_p, i_f] += nisa.nc_matmul(
                tile[i_p, i_f],
                identity[i_p, i_f],
                is_stationary_onezero=False,
                is_moving_onezero=True,
                is_transpose=True,
            )
            turned[m, k, i_p, i_f] = nl.copy(turning[m, k, i_p, i_f], dtype=np.float32)
        for n in nl.affine_range(n_tiles):
            for k in nl.affine_range(k_tiles):
                rhs_tile = nl.load(rhs[k, i_p, n * tile_n + i_n], dtype=np.float32, mask=None)
                sums[m, n, i_p, i_n] += nisa.nc_matmul(turned[m, k, i_p, i_f], rhs_tile)
            nl.store(
                result[m, i_p, i_n + tile_n * n], value=nl.copy(sums[m, n, i_p, i_n]), mask=None
            )
    return result
