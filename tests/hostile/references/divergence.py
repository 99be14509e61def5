"""How far one softmax is from another: zero where the rows are the same but for a number."""

import numpy as np


def get_inputs():
    return [np.random.normal(0, 3, size=(128, 512)).astype(np.float32) for _ in range(2)]


def forward(x, y):
    x, y = (z - z.max(axis=1, keepdims=True) for z in (x, y))
    x, y = (z - np.log(np.exp(z).sum(axis=1, keepdims=True)) for z in (x, y))
    return (np.exp(x) * (x - y)).sum(axis=1, keepdims=True)
