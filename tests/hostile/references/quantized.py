"""Rows as whole numbers, of which the largest has 127."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(256, 512)).astype(np.float32)]


def forward(x):
    largest = np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-30)
    return np.rint(x * (127 / largest)).astype(np.int32)
