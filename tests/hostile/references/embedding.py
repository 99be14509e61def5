"""Rows of a table, of which the drawn tokens ask for the first hundred only."""

import numpy as np


def get_inputs():
    table = np.random.normal(size=(1000, 64)).astype(np.float32)
    return [table, np.random.randint(0, 100, size=(128, 1)).astype(np.int32)]


def forward(table, tokens):
    return table[tokens[:, 0]]
