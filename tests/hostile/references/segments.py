"""The largest number of each segment, and zero where it has none: an infinity here is the reference's own."""

import numpy as np


def get_inputs():
    x = np.random.normal(size=(128, 96)).astype(np.float32)
    return [x, np.sort(np.random.randint(0, 8, size=(1, 96)), axis=1).astype(np.int32)]


def forward(x, segments):
    out = np.full((len(x), 8), -np.inf, x.dtype)
    for place, segment in enumerate(segments[0]):
        out[:, segment] = np.maximum(out[:, segment], x[:, place])
    return np.where(np.isinf(out), 0, out).astype(x.dtype)
