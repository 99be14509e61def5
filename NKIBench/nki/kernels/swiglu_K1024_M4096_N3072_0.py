"""The gated feed-forward block for 128 rows at a time, with the hidden rows kept in SBUF."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x, w_up, w_down, w_gate):
    """(silu(x @ w_gate) * (x @ w_up)) @ w_down as (M / 128, 128, K).

    x (M / 512, 4, 128, K / 128, 128), w_up and w_gate (K / 128, 128, N), w_down (N / 128, 128, K).
    """
    blocks, tiles, tile_m, k_tiles, tile_k = x.shape
    h_tiles, tile_h, k_size = w_down.shape
    n_size = h_tiles * tile_h
    tile_n = min(nl.tile_size.gemm_moving_fmax, n_size)
    tile_out = min(nl.tile_size.gemm_moving_fmax, k_size)
    assert n_size % tile_n == 0 and k_size % tile_out == 0

    result = nl.ndarray((blocks * tiles, tile_m, k_size), dtype=x.dtype, buffer=nl.shared_hbm)
    for block in nl.affine_range(blocks):
        for tile in nl.affine_range(tiles):
            x_transposed = nl.ndarray((tile_k, k_tiles, tile_m), dtype=x.dtype)
            for k in nl.affine_range(k_tiles):
                x_tile = nl.load(x[block, tile, :, k, :])
                turned = nl.ndarray(
                    (x_tile.shape[1], x_tile.shape[0]), dtype=x_tile.dtype, buffer=nl.psum
                )
                nisa.nc_transpose(dst=turned, data=x_tile)
                x_transposed[:, k, :] = nl.copy(turned)

            hidden = nl.ndarray((tile_m, n_size), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // tile_n):
                columns = nl.ds(n * tile_n, tile_n)
                gate_sum = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
                up_sum = nl.ndarray((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(k_tiles):
                    gate_tile = nl.load(w_gate[k, :, columns])
                    nisa.nc_matmul(dst=gate_sum, stationary=x_transposed[:, k, :], moving=gate_tile)
                    up_tile = nl.load(w_up[k, :, columns])
                    nisa.nc_matmul(dst=up_sum, stationary=x_transposed[:, k, :], moving=up_tile)
                gate = nl.copy(gate_sum)
                activated = nl.divide(gate, nl.add(nl.exp(nl.negative(gate)), 1.0))
                hidden[:, columns] = nl.multiply(activated, up_sum)

            hidden_transposed = nl.ndarray((tile_h, h_tiles, tile_m), dtype=x.dtype)
            for h in nl.affine_range(h_tiles):
                hidden_tile = hidden[:, nl.ds(h * tile_h, tile_h)]
                turned_2 = nl.ndarray(
                    (hidden_tile.shape[1], hidden_tile.shape[0]),
                    dtype=hidden_tile.dtype,
                    buffer=nl.psum,
                )
                nisa.nc_transpose(dst=turned_2, data=hidden_tile)
                hidden_transposed[:, h, :] = nl.copy(turned_2)

            for n in nl.affine_range(k_size // tile_out):
                columns = nl.ds(n * tile_out, tile_out)
                down_sum = nl.ndarray((tile_m, tile_out), dtype=nl.float32, buffer=nl.psum)
                for h in nl.affine_range(h_tiles):
                    down_tile = nl.load(w_down[h, :, columns])
                    nisa.nc_matmul(
                        dst=down_sum, stationary=hidden_transposed[:, h, :], moving=down_tile
                    )
                nl.store(result[block * tiles + tile, :, columns], nl.copy(down_sum))
    return result
