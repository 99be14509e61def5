"""What is missing counts as zero, and infinities as the largest that counts; and the largest of what is there."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 256)).astype(np.float32)]


def forward(x):
    known = np.where(np.isnan(x), 0, x)
    largest = np.where(np.isnan(x), -np.inf, x).max(axis=1, keepdims=True)
    return known, np.clip(known, -1e4, 1e4), largest
