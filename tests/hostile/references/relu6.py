"""A clipped ReLU of a shape that no tile divides; no draw reaches six."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(300, 257)).astype(np.float32)]


def forward(x):
    return np.minimum(np.maximum(x, 0), 6).astype(x.dtype)
