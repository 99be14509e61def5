"""Softmax in logarithms."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(256, 1000)).astype(np.float32)]


def forward(x):
    y = x - x.max(axis=1, keepdims=True)
    return y - np.log(np.exp(y).sum(axis=1, keepdims=True))
