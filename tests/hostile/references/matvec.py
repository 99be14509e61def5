"""A matrix times a vector: rows of one number, some near zero by cancellation."""

import numpy as np


def get_inputs():
    return [
        np.random.normal(size=(512, 640)).astype(np.float32),
        np.random.normal(size=(640, 1)).astype(np.float32),
    ]


def forward(a, x):
    return a @ x
