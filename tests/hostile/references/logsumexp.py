"""Logarithms of the sums of rows."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(256, 128)).astype(np.float32)]


def forward(x):
    peak = x.max(axis=1, keepdims=True)
    return peak + np.log(np.exp(x - peak).sum(axis=1, keepdims=True))
