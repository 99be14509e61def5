"""A gated unit whose gate is limited above, and whose other factor on both sides."""

import numpy as np


def get_inputs():
    return list(np.random.normal(size=(2, 128, 256)).astype(np.float32))


def forward(gate, up):
    gate = np.minimum(gate, 7)
    return gate / (1 + np.exp(-1.702 * gate)) * np.clip(up, -7, 7)
