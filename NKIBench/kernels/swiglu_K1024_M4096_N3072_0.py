"""The gated feed-forward block for 128 rows at a time, with the hidden rows kept in SBUF."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


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
            x_transposed = nl.ndarray((k_tiles, nl.par_dim(tile_k), tile_m), dtype=x.dtype)
            for k in nl.affine_range(k_tiles):
                x_tile = nl.load(x[block, tile, :, k, :])
                x_transposed[k, :, :] = nl.copy(nisa.nc_transpose(x_tile))

            hidden = nl.ndarray((nl.par_dim(tile_m), n_size), dtype=nl.float32, buffer=nl.sbuf)
            for n in nl.affine_range(n_size // tile_n):
                columns = nl.ds(n * tile_n, tile_n)
                gate_sum = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
                up_sum = nl.zeros((tile_m, tile_n), dtype=nl.float32, buffer=nl.psum)
                for k in nl.affine_range(k_tiles):
                    gate_tile = nl.load(w_gate[k, :, columns])
                    gate_sum += nisa.nc_matmul(x_transposed[k, :, :], gate_tile)
                    up_tile = nl.load(w_up[k, :, columns])
                    up_sum += nisa.nc_matmul(x_transposed[k, :, :], up_tile)
                gate = nl.copy(gate_sum)
                activated = nl.divide(gate, nl.add(nl.exp(nl.negative(gate)), 1.0))
                hidden[:, columns] = nl.multiply(activated, up_sum)

            hidden_transposed = nl.ndarray((h_tiles, nl.par_dim(tile_h), tile_m), dtype=x.dtype)
            for h in nl.affine_range(h_tiles):
                hidden_tile = hidden[:, nl.ds(h * tile_h, tile_h)]
                hidden_transposed[h, :, :] = nl.copy(nisa.nc_transpose(hidden_tile))

            for n in nl.affine_range(k_size // tile_out):
                columns = nl.ds(n * tile_out, tile_out)
                down_sum = nl.zeros((tile_m, tile_out), dtype=nl.float32, buffer=nl.psum)
                for h in nl.affine_range(h_tiles):
                    down_tile = nl.load(w_down[h, :, columns])
                    down_sum += nisa.nc_matmul(hidden_transposed[h, :, :], down_tile)
                nl.store(result[block * tiles + tile, :, columns], value=nl.copy(down_sum))
    return result
