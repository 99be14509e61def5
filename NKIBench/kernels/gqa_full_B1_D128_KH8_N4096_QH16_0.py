"""Attention for one query head and 128 queries at a time, with all scores of a row in SBUF."""

import math

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def kernel(q, k, v):
    """softmax(q k^T / sqrt(D)) v as (B, KH, QH / KH, N / 128, 128, D), for B = 1.

    q (N / 128, 128, QH, D), k (B, N / 512, 4, 128, KH, D), v (B, N / 128, 128, KH D).
    """
    q_tiles, tile_q, query_heads, d = q.shape
    batches, k_blocks, k_subtiles, tile_k, groups, _ = k.shape
    k_tiles = k_blocks * k_subtiles
    heads_per_group = query_heads // groups
    k_size = k_tiles * tile_k
    tile_n = min(nl.tile_size.gemm_moving_fmax, k_size)
    assert batches == 1 and d <= nl.tile_size.pmax and k_size % tile_n == 0

    result = nl.ndarray(
        (batches, groups, heads_per_group, q_tiles, tile_q, d), dtype=q.dtype, buffer=nl.shared_hbm
    )
    for group in nl.affine_range(groups):
        # The scores contract over D, so both q and k need it on the partitions.
        k_transposed = nl.ndarray((nl.par_dim(d), k_size), dtype=k.dtype, buffer=nl.sbuf)
        for block in nl.affine_range(k_blocks):
            for tile in nl.affine_range(k_subtiles):
                start = (block * k_subtiles + tile) * tile_k
                k_tile = nl.load(k[0, block, tile, :, group, :])
                k_transposed[:, nl.ds(start, tile_k)] = nl.copy(nisa.nc_transpose(k_tile))

        for head in nl.affine_range(heads_per_group):
            for i in nl.affine_range(q_tiles):
                q_tile = nl.load(q[i, :, group * heads_per_group + head, :])
                q_transposed = nl.copy(nisa.nc_transpose(q_tile))

                scores = nl.ndarray((nl.par_dim(tile_q), k_size), dtype=nl.float32, buffer=nl.sbuf)
                for n in nl.affine_range(k_size // tile_n):
                    columns = nl.ds(n * tile_n, tile_n)
                    products = nisa.nc_matmul(q_transposed, k_transposed[:, columns])
                    scores[:, columns] = nl.multiply(products, 1.0 / math.sqrt(d))

                row_max = nl.max(scores, axis=1, keepdims=True)
                exponentials = nl.exp(nl.subtract(scores, row_max))
                row_sum = nl.sum(exponentials, axis=1, keepdims=True)
                weights = nl.divide(exponentials, row_sum)

                output = nl.zeros((tile_q, d), dtype=nl.float32, buffer=nl.psum)
                for t in nl.affine_range(k_tiles):
                    weights_tile = weights[:, nl.ds(t * tile_k, tile_k)]
                    weights_transposed = nl.copy(nisa.nc_transpose(weights_tile))
                    v_tile = nl.load(v[0, t, :, nl.ds(group * d, d)])
                    output += nisa.nc_matmul(weights_transposed, v_tile)
                nl.store(result[0, group, head, i, :, :], value=nl.copy(output))
    return result
