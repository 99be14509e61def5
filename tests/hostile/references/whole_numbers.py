"""Sums and bits of whole numbers, of which those drawn are small."""

import numpy as np


def get_inputs():
    return [np.random.randint(0, 1000, size=(128, 64)).astype(np.int32)]


def forward(n):
    return n.sum(axis=1, keepdims=True, dtype=np.int32), (n >> 3) & 4095
