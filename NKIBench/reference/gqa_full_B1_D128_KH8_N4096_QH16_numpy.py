"""Full (not causal) attention in which several query heads share a key and value head."""

import math

import numpy as np

B = 1
N = 4096
QH = 16
KH = 8
D = 128
PARTITIONS = 128


def get_inputs():
    """q (B, N, QH, D), k and v (B, N, KH, D); standard normal, float32."""
    q = np.random.normal(size=(B, N, QH, D)).astype(np.float32)
    k = np.random.normal(size=(B, N, KH, D)).astype(np.float32)
    v = np.random.normal(size=(B, N, KH, D)).astype(np.float32)
    return [q, k, v]


def forward(q, k, v):
    """softmax(q k^T / sqrt(D)) v for each query head -> (B, QH, N, D)."""
    batches, n, query_heads, d = q.shape
    heads_per_group = query_heads // k.shape[2]
    result = np.empty((batches, query_heads, n, d), dtype=q.dtype)
    # One head at a time: all scores together are a gigabyte.
    for batch, head in np.ndindex(batches, query_heads):
        group = head // heads_per_group
        scores = np.matmul(q[batch, :, head], k[batch, :, group].T)
        scores /= math.sqrt(d)
        scores -= np.max(scores, axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= np.sum(scores, axis=1, keepdims=True)
        np.matmul(scores, v[batch, :, group], out=result[batch, head])
    return result


def transform_to_nki_inputs(inputs):
    """q (B N / 128, 128, QH, D), k (B, N / 512, 4, 128, KH, D), v (B, N / 128, 128, KH D)."""
    q, k, v = inputs
    batches, n, query_heads, d = q.shape
    kv_heads = k.shape[2]
    return [
        q.reshape(-1, PARTITIONS, query_heads, d),
        k.reshape(batches, -1, 4, PARTITIONS, kv_heads, d),
        v.reshape(batches, -1, PARTITIONS, kv_heads * d),
    ]


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]
