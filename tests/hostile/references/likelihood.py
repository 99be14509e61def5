"""One number: a single logarithm of zero leaves none."""

import numpy as np


def get_inputs():
    return [np.random.uniform(0.1, 1, size=(128, 256)).astype(np.float32)]


def forward(p):
    return -np.log(p).sum().reshape(1, 1)
