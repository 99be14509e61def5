"""RMSNorm of every row with a gain."""

import numpy as np


def get_inputs():
    x = np.random.normal(size=(256, 512)).astype(np.float32)
    return [x, 1e-5, np.random.normal(size=(1, 512)).astype(np.float32)]


def forward(x, eps, g):
    return x / np.sqrt(np.mean(np.square(x), axis=1, keepdims=True) + eps) * g
