"""The largest of half a million numbers."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(1024, 512)).astype(np.float32)]


def forward(x):
    return x.max().reshape(1, 1)
