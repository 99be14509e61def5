"""Mean squared difference of rows in half precision, and the same over the rows with a label, in float32."""

import numpy as np


def get_inputs():
    a, b = np.random.normal(size=(2, 128, 320)).astype(np.float16)
    return [a, b, np.random.randint(-2, 8, size=(128, 1)).astype(np.int32)]


def domain(a, b, label):
    return [*(np.clip(np.nan_to_num(x), -100, 100) for x in (a, b)), label]


def forward(a, b, label):
    d = a.astype(np.float32) - b.astype(np.float32)
    mean, kept = np.mean(d * d, axis=1, keepdims=True), label >= 0
    return mean.astype(np.float16), (mean * kept).sum(0) / np.maximum(kept.sum(), 1)
