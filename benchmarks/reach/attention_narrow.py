"""aws-neuron/nki-samples, tutorials/attention_fwd_performance: the steps that compute in bfloat16."""

import numpy as np

FILE = "attention_fwd_performance/attention_kernels.py"
FUNCTIONS = (
    "attn_fwd_v7",
    "attn_fwd_v8",
    "attn_fwd_v8a",
    "attn_fwd_v9",
    "attn_fwd_v10",
    "attn_fwd_v11",
)
precision = "bfloat16"


def get_inputs():
    return [np.random.normal(size=(128, 2048)).astype(np.float32) for _ in range(3)]


def forward(q, k, v):
    scores = q.T @ k
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)) @ v.T


def transform_to_nki_inputs(inputs):
    return list(inputs)
