"""Sum and difference of two matrices."""

import numpy as np


def get_inputs():
    return list(np.random.normal(size=(2, 128, 512)).astype(np.float32))


def forward(x, y):
    return x + y, x - y
