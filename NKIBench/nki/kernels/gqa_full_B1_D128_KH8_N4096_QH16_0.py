"""Attention for one query head and 128 queries at a time, with all scores of a row in SBUF."""

import math

import nki
import nki.isa as nisa
import nki.language as nl


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
        k_transposed = nl.ndarray((d, k_size), dtype=k.dtype, buffer=nl.sbuf)
        for block in nl.affine_range(k_blocks):
            for tile in nl.affine_range(k_subtiles):
                start = (block * k_subtiles + tile) * tile_k
                k_tile = nl.load(k[0, block, tile, :, group, :])
                turned = nl.ndarray(
                    (k_tile.shape[1], k_tile.shape[0]), dtype=k_tile.dtype, buffer=nl.psum
                )
                nisa.nc_transpose(dst=turned, data=k_tile)
                k_transposed[:, nl.ds(start, tile_k)] = nl.copy(turned)

        for head in nl.affine_range(heads_per_group):
            for i in nl.affine_range(q_tiles):
                q_tile = nl.load(q[i, :, group * heads_per_group + head, :])
                turned_2 = nl.ndarray(
                    (q_tile.shape[1], q_tile.shape[0]), dtype=q_tile.dtype, buffer=nl.psum
                )
                nisa.nc_transpose(dst=turned_2, data=q_tile)
                q_transposed = nl.copy(turned_2)

                scores = nl.ndarray((tile_q, k_size), dtype=nl.float32, buffer=nl.sbuf)
                for n in nl.affine_range(k_size // tile_n):
                    columns = nl.ds(n * tile_n, tile_n)
                    moving = k_transposed[:, columns]
                    products = nl.ndarray(
                        (q_transposed.shape[1], moving.shape[1]), dtype=nl.float32, buffer=nl.psum
                    )
                    nisa.nc_matmul(dst=products, stationary=q_transposed, moving=moving)
                    scores[:, columns] = nl.multiply(products, 1.0 / math.sqrt(d))

                row_max = nl.max(scores, axis=1, keepdims=True)
                tile_2 = nl.ndarray(scores.shape, dtype=scores.dtype, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=tile_2, data=scores, op0=nl.subtract, operand0=row_max)
                exponentials = nl.exp(tile_2)
                row_sum = nl.sum(exponentials, axis=1, keepdims=True)
                weights = nl.ndarray(exponentials.shape, dtype=exponentials.dtype, buffer=nl.sbuf)
                nisa.tensor_scalar(dst=weights, data=exponentials, op0=nl.divide, operand0=row_sum)

                output = nl.ndarray((tile_q, d), dtype=nl.float32, buffer=nl.psum)
                for t in nl.affine_range(k_tiles):
                    weights_tile = weights[:, nl.ds(t * tile_k, tile_k)]
                    turned_3 = nl.ndarray(
                        (weights_tile.shape[1], weights_tile.shape[0]),
                        dtype=weights_tile.dtype,
                        buffer=nl.psum,
                    )
                    nisa.nc_transpose(dst=turned_3, data=weights_tile)
                    weights_transposed = nl.copy(turned_3)
                    v_tile = nl.load(v[0, t, :, nl.ds(group * d, d)])
                    nisa.nc_matmul(dst=output, stationary=weights_transposed, moving=v_tile)
                nl.store(result[0, group, head, i, :, :], nl.copy(output))
    return result
