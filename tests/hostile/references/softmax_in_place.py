"""Softmax of every row, worked out in place, as a sparing reference does."""

import numpy as np


def get_inputs():
    return [4 * np.random.normal(size=(256, 1024)).astype(np.float32)]


def forward(x):
    x -= x.max(axis=1, keepdims=True)
    np.exp(x, out=x)
    x /= x.sum(axis=1, keepdims=True)
    return x


def transform_to_nki_inputs(inputs):
    inputs[0] *= 1.0
    return inputs
