"""The product of a transposed matrix with another."""

import numpy as np

M = 4096
N = 10944
K = 2048
PARTITIONS = 128


def get_inputs():
    """lhs (K, M) and rhs (K, N), standard normal, float32."""
    lhs = np.random.normal(size=(K, M)).astype(np.float32)
    rhs = np.random.normal(size=(K, N)).astype(np.float32)
    return [lhs, rhs]


def forward(lhs, rhs):
    """lhs.T @ rhs -> (M, N)."""
    return np.matmul(lhs.T, rhs)


def transform_to_nki_inputs(inputs):
    """lhs (128, K / 128, M), rhs (128, K / 128, N): partition p holds K / 128 consecutive rows."""
    lhs, rhs = inputs
    return [
        lhs.reshape(PARTITIONS, -1, lhs.shape[1]),
        rhs.reshape(PARTITIONS, -1, rhs.shape[1]),
    ]


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]
