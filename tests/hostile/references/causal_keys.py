"""Attention weights of a causal block, of queries in bfloat16 and keys in fp8."""

import ml_dtypes
import numpy as np


def get_inputs():
    q = np.random.normal(size=(128, 64)).astype(ml_dtypes.bfloat16)
    return [q, np.random.normal(size=(256, 64)).astype(ml_dtypes.float8_e4m3)]


def transform_to_nki_inputs(inputs):
    return [np.ascontiguousarray(value.T) for value in inputs]


def forward(q, k):
    s = q.astype(np.float32) @ k.astype(np.float32).T * np.float32(0.125)
    s = np.where(np.arange(256) <= np.arange(128)[:, None] + 128, s, -np.inf)
    e = np.exp(s - s.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)).astype(ml_dtypes.bfloat16)
