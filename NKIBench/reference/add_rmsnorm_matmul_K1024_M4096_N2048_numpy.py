"""Residual addition, RMS normalisation with gain, then a matrix product."""

import numpy as np

M = 4096
N = 2048
K = 1024


def get_inputs():
    """x (M, K), w (K, N), eps (a Python number), z (M, K), g (K,); standard normal, float32."""
    x = np.random.normal(size=(M, K)).astype(np.float32)
    w = np.random.normal(size=(K, N)).astype(np.float32)
    z = np.random.normal(size=(M, K)).astype(np.float32)
    g = np.random.normal(size=(K,)).astype(np.float32)
    return [x, w, 1e-5, z, g]


def forward(x, w, eps, z, g):
    """(y / sqrt(mean(y^2) + eps) * g) @ w with y = x + z -> (M, N)."""
    y = x + z
    root_mean_square = np.sqrt(np.mean(np.square(y), axis=1, keepdims=True) + eps)
    return np.matmul(y / root_mean_square * g, w)


def transform_to_nki_inputs(inputs):
    """All five as they are."""
    return inputs


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]
