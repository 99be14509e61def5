"""Rotary position embedding that pairs the first half of the head with the second."""

import numpy as np

B = 1
H = 64
N = 4096
D = 128


def get_inputs():
    """x (D, B H N), cos and sin (D / 2, B H N); standard normal, float32."""
    tokens = B * H * N
    x = np.random.normal(size=(D, tokens)).astype(np.float32)
    cos = np.random.normal(size=(D // 2, tokens)).astype(np.float32)
    sin = np.random.normal(size=(D // 2, tokens)).astype(np.float32)
    return [x, cos, sin]


def forward(x, cos, sin):
    """Rows (x0 cos - x1 sin; x0 sin + x1 cos), where x0 and x1 are the halves of x."""
    half = x.shape[0] // 2
    x0, x1 = x[:half], x[half:]
    return np.concatenate([x0 * cos - x1 * sin, x0 * sin + x1 * cos])


def transform_to_nki_inputs(inputs):
    """x, cos, sin as they are: the head dimension already lies on the partitions."""
    return inputs


def transform_nki_outputs(k_res, ref):
    """The kernel's output as it is."""
    return (k_res,)
