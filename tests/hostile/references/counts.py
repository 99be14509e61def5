"""How often numbers below four stand in a row."""

import numpy as np


def get_inputs():
    return [np.random.randint(0, 4, (128, 512)).astype(np.int32)]


def forward(n):
    return np.stack([(n == k).sum(axis=1) for k in range(4)], axis=1).astype(np.int32)
