"""The sixteen largest of each row."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 200)).astype(np.float32)]


def forward(x):
    return np.sort(x, axis=1)[:, ::-1][:, :16].copy()
