"""Differences of running means of numbers around one: float32 gives them to no more than the published bound."""

import numpy as np


def get_inputs():
    steps = np.random.normal(scale=0.01, size=(128, 512))
    return [np.exp(np.cumsum(steps, axis=1)).astype(np.float32)]


def mean(x, weight, last):
    found = np.empty_like(x)
    for t in range(x.shape[1]):
        last = (1 - weight) * last + weight * x[:, t]
        found[:, t] = last
    return found


def forward(x):
    line = mean(x, 2 / 13, x[:, 0]) - mean(x, 2 / 27, x[:, 0])
    return line - mean(line, 0.2, 0 * x[:, 0])
