"""A gradient where it is kept, which each draw does everywhere, and no longer than one."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 256)).astype(np.float32), np.ones((128, 256), np.int32)]


def forward(gradient, kept):
    gradient = np.where(kept != 0, gradient, np.float32(0))
    length = np.sqrt((gradient * gradient).sum())
    return gradient * np.minimum(1, 1 / (length + np.float32(1e-6)))
