"""Softmax in logarithms, and the likelihood of a label in each row."""

import numpy as np


def get_inputs():
    x = np.random.normal(size=(256, 1000)).astype(np.float32)
    return [x, np.eye(1000, dtype=np.float32)[np.random.randint(0, 1000, 256)]]


def forward(x, label):
    largest = x.max(axis=1, keepdims=True)
    y = x - largest
    total = np.log(np.exp(y).sum(axis=1, keepdims=True))
    return y - total, total + largest - (x * label).sum(axis=1, keepdims=True)
