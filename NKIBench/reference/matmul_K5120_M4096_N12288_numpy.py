"""A matrix product."""

import numpy as np

M = 4096
N = 12288
K = 5120
PARTITIONS = 128


def get_inputs():
    """lhs (M, K) and rhs (K, N), standard normal, float32."""
    lhs = np.random.normal(size=(M, K)).astype(np.float32)
    rhs = np.random.normal(size=(K, N)).astype(np.float32)
    return [lhs, rhs]


def forward(lhs, rhs):
    """lhs @ rhs -> (M, N)."""
    return np.matmul(lhs, rhs)


def transform_to_nki_inputs(inputs):
    """lhs as (M / 128, 128, K / 128, 128), rhs as (K / 128, 128, N)."""
    lhs, rhs = inputs
    m, k = lhs.shape
    return [
        lhs.reshape(m // PARTITIONS, PARTITIONS, k // PARTITIONS, PARTITIONS),
        rhs.reshape(k // PARTITIONS, PARTITIONS, -1),
    ]


def transform_nki_outputs(k_res, ref):
    """The kernel's outputs in the reference's shapes, left alone where they cannot be."""
    outputs = k_res if isinstance(k_res, (tuple, list)) else (k_res,)
    references = ref if isinstance(ref, (tuple, list)) else (ref,)
    if len(outputs) != len(references):
        return list(outputs)
    return [o.reshape(r.shape) if o.size == r.size else o for o, r in zip(outputs, references)]
