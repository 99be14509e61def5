"""Lowered kernels pass the full referee: hidden seeds, extreme rows, the honest limit of fp32.

A first lowering of the recurrence summed states by products with the identity; one row that
overflowed made every other row NaN, which the referee's large rows found.
"""

import random
from pathlib import Path

import pytest

from accelopt.kernel_wrapper import NKIKernel
from accelopt.kernels.nki.nests.lowering import lower_nest
from accelopt.kernels.nki.nests.starts import starting_nests
from tests.kernels.nki.lift import algorithms

COMMON = """import numpy as np


def drawn(scale, *shapes):
    return [np.random.normal(0, scale, shape).astype(np.float32) for shape in shapes]
"""

STATES = """

def get_inputs():
    return drawn(0.05, (128, 512), (128, 512), (128, 4), (4, 512), (4, 512))


def forward(delta, u, a, b, c):
    decay = np.exp(delta[:, None, :] * a[:, :, None])
    term = delta[:, None, :] * b[None] * u[:, None, :]
    state = np.zeros((128, 4, 512), np.float32)
    last = 0
    for t in range(512):
        last = state[..., t] = decay[..., t] * last + term[..., t]
    return np.sum(c[None] * state, axis=1)
"""

ATTENTION = """

def get_inputs():
    return drawn(1.0, (512, 2, 128), (512, 1, 128), (512, 1, 128))


def forward(q, k, v):
    q, k, v = (x.transpose(1, 0, 2) for x in (q, k, v))
    scores = (q @ k.transpose(0, 2, 1)) * np.float32(128**-0.5)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return (weights / np.sum(weights, axis=-1, keepdims=True)) @ v
"""

JUDGED = 3
"""Nests of each algorithm."""
CASES = {
    "recurrence": (STATES, algorithms.state_space(128, 512, 4)),
    "attention": (ATTENTION, algorithms.attention(512, 1, 128)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_lowered_kernel_passes(name: str, tmp_path: Path) -> None:
    reference, algorithm = CASES[name]
    kernel, task = tmp_path / "kernel.py", tmp_path / "reference.py"
    task.write_text(COMMON + reference)
    for nest in random.Random(7).sample([*starting_nests(algorithm)], JUDGED):
        kernel.write_text(lower_nest(algorithm, nest).source)
        verdict = NKIKernel(str(kernel), str(task)).profile()
        assert verdict.correct, (nest, verdict.metadata)
