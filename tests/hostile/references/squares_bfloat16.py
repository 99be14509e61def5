"""Squares of a product, of numbers of bfloat16."""

import ml_dtypes
import numpy as np


def get_inputs():
    a = np.random.normal(size=(128, 128)).astype(ml_dtypes.bfloat16)
    return [a, (np.random.normal(size=(128, 512)) / 8).astype(ml_dtypes.bfloat16)]


def forward(a, b):
    return np.square(a.astype(np.float32).T @ b.astype(np.float32)).astype(a.dtype)
