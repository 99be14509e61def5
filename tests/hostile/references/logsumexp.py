"""Logarithms of the sums of rows of which so many elements count."""

import numpy as np


def get_inputs():
    lengths = np.random.randint(200, 257, (128, 1)).astype(np.int32)
    return [np.random.normal(size=(128, 256)).astype(np.float32), lengths]


def forward(x, lengths):
    x = np.where(np.arange(256) < lengths, x, -np.inf)
    peak = x.max(axis=1, keepdims=True)
    return peak + np.log(np.exp(x - peak).sum(axis=1, keepdims=True))
