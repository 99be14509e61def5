"""A projection with a low-rank adapter beside it."""

import numpy as np

M = 4096
N = 12288
K = 5120
R = 128
PARTITIONS = 128


def get_inputs():
    """x (M, K), w (K, N), a (K, R), b (R, N); standard normal, float32."""
    x = np.random.normal(size=(M, K)).astype(np.float32)
    w = np.random.normal(size=(K, N)).astype(np.float32)
    a = np.random.normal(size=(K, R)).astype(np.float32)
    b = np.random.normal(size=(R, N)).astype(np.float32)
    return [x, w, a, b]


def forward(x, w, a, b):
    """x @ w + (x @ a) @ b -> (M, N)."""
    y = np.matmul(x, w)
    y += np.matmul(np.matmul(x, a), b)
    return y


def transform_to_nki_inputs(inputs):
    """x (M / 512, 4, 128, K / 128, 128), w (K / 128, 128, N), a (K / 128, 128, R), b (R, N)."""
    x, w, a, b = inputs
    k_tiles = x.shape[1] // PARTITIONS
    return [
        x.reshape(-1, 4, PARTITIONS, k_tiles, PARTITIONS),
        w.reshape(k_tiles, PARTITIONS, -1),
        a.reshape(k_tiles, PARTITIONS, -1),
        b,
    ]


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]
