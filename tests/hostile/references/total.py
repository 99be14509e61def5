"""The sum of two million numbers between 0 and 1."""

import numpy as np


def get_inputs():
    return [np.random.uniform(size=(2048, 1024)).astype(np.float32)]


def forward(x):
    return x.sum(dtype=x.dtype).reshape(1, 1)
