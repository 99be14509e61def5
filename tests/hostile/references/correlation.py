"""How each row goes with the row beside it."""

import numpy as np


def get_inputs():
    return [np.random.normal(size=(128, 256)).astype(np.float32) for _ in range(2)]


def forward(x, y):
    x, y = (z - z.mean(axis=1, keepdims=True) for z in (x, y))
    sizes = (np.maximum(np.sqrt((z * z).sum(axis=1, keepdims=True)), 1e-6) for z in (x, y))
    return (x * y).sum(axis=1, keepdims=True) / np.prod([*sizes], axis=0)
