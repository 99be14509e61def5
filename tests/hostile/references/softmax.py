"""Softmax of every row."""

import numpy as np


def get_inputs():
    return [4 * np.random.normal(size=(256, 1024)).astype(np.float32)]


def forward(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
