"""Sums and maxima of rows of which only so many elements count; those drawn are whole."""

import numpy as np


def get_inputs():
    x = np.random.normal(size=(128, 256)).astype(np.float32)
    return [x, np.full((128, 1), 256, np.int32), np.random.randint(0, 8, (128, 1)).astype(np.int32)]


def forward(x, lengths, label):
    there = np.arange(256) < lengths
    one_hot = label == np.arange(256)
    peak = np.where(there, x, -np.inf).max(axis=1, keepdims=True)
    return np.where(there, x, 0).sum(axis=1, keepdims=True), one_hot.astype(np.float32), peak
