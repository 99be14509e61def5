"""The selective scan, one state of 128 channels at a time over the whole sequence."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(delta, u, a, b, c):
    """delta, u (C, M), a (C, S), b, c (S, M) -> sum over states of c_t h_t (C, M), where

    h_t = exp(delta_t a) h_(t-1) + delta_t u_t b_t.
    """
    channels, length = delta.shape
    states = a.shape[1]
    tile_c = nl.tile_size.pmax
    assert channels % tile_c == 0

    result = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(channels // tile_c):
        rows = nl.ds(i * tile_c, tile_c)
        delta_tile = nl.load(delta[rows, :])
        u_tile = nl.load(u[rows, :])
        delta_u = nl.multiply(delta_tile, u_tile)

        total = nl.zeros((tile_c, length), dtype=nl.float32, buffer=nl.sbuf)
        for s in nl.affine_range(states):
            a_column = nl.load(a[rows, nl.ds(s, 1)])
            b_row = nl.load(b[nl.ds(s, 1), :])
            c_row = nl.load(c[nl.ds(s, 1), :])

            decay = nl.ndarray(delta_tile.shape, dtype=delta_tile.dtype, buffer=nl.sbuf)
            nisa.activation(dst=decay, op=nl.exp, data=delta_tile, scale=a_column)
            drive = nl.multiply(delta_u, nl.broadcast_to(b_row, (tile_c, length)))
            h = nl.ndarray(decay.shape, dtype=decay.dtype, buffer=nl.sbuf)
            nisa.tensor_tensor_scan(
                dst=h, data0=decay, data1=drive, initial=0, op0=nl.multiply, op1=nl.add
            )
            term = nl.multiply(h, nl.broadcast_to(c_row, (tile_c, length)))
            nisa.tensor_tensor(dst=total, data1=total, data2=term, op=nl.add)
        nl.store(result[rows, :], total)
    return result
