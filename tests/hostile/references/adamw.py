"""One AdamW step."""

import numpy as np


def get_inputs():
    theta, g, m, v = np.random.normal(size=(4, 256, 512)).astype(np.float32)
    return [theta, g, m, np.abs(v)]


def forward(theta, g, m, v):
    first = 0.9 * m + 0.1 * g
    second = 0.999 * v + 0.001 * np.square(g)
    return theta - 1e-5 * theta - 0.01 * first / (np.sqrt(1000 * second) + 1e-8)
