"""Functions of single elements whose corners no draw of normal numbers meets."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 1024)).astype(np.float32) for _ in range(2)]


def forward(x, y):
    softplus = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return np.rint(x), (x >= y).astype(np.float32), softplus, np.maximum(x, 0), np.fmod(x, 2)
