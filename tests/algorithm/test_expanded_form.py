"""Forms in which one compares: what is equal in real numbers comes out equal, and means what it did."""

from pathlib import Path

import numpy as np
import pytest

from accelopt.algorithm.equality import difference, overflow
from accelopt.algorithm.ir import Algorithm
from accelopt.algorithm.reference_trace import trace_reference

INPUTS = [np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float32)]
EQUAL = [
    ("np.tanh(x)", "2 / (1 + np.exp(-2 * x)) - 1"),
    ("1 / (1 + np.exp(-x)) * y", "0.5 * y * (np.tanh(x / 2) + 1)"),
    ("np.maximum(x, 0) + np.log(1 + np.exp(-np.abs(x)))", "x + np.maximum(-x, 0) + np.log1p(np.exp(-np.abs(-x)))"),
    ("np.clip(x + 3, 0, 6) / 6", "np.minimum(np.maximum(x / 6 + 0.5, 0), 1)"),
    ("np.where(x > y, x * y, 0)", "(x > y) * x * y"),
    ("np.where(x > y, 0, x)", "x * (x <= y)"),
    ("softmax(x) * y", "softmax(x - 3) * y"),
    ("-(softmax(x) * np.log(softmax(x))).sum(1)", "np.log(e(x).sum(1)) + x.max(1) - (softmax(x) * x).sum(1)"),
    ("(x - x.mean(1, keepdims=True)) * y + x", "x * y + x - y * x.sum(1, keepdims=True) / 6"),
    ("np.sqrt(4 * x * x + 1)", "2 * np.sqrt(x * x + 0.25)"),
    ("np.where(m >= n, np.where(m >= 2, x, y), y)", "np.where((m >= 2) & (m >= n), x, y)"),
]  # fmt: skip
DIFFERENT = [
    ("np.where(x > y, x / y, 0)", "(x > y) * x / y"),  # which is no number where y is 0
    ("np.where(x > y, x, 0)", "(x >= y) * x"),
    ("softmax(x)", "np.exp(x) / np.exp(x).sum(1, keepdims=True)"),  # which overflows
    ("softmax(x)", "np.exp(x - x[:, :3].max(1, keepdims=True)) / np.exp(x - x[:, :3].max(1, keepdims=True)).sum(1, keepdims=True)"),
    ("np.tanh(x)", "2 / (1 + np.exp(-x)) - 1"),
    ("np.maximum(x, 0)", "np.abs(x)"),
    ("np.where(m >= n, x, y)", "np.where(m >= n + 1, x, y)"),
    ("top(x, 2)", "top(x, 1)"),  # written to places that it finds
    ("softmax(np.where(m > n, x, -1e30))", "softmax(np.where(m > n, x, -np.inf))"),  # row 0 is masked whole
]  # fmt: skip


def algorithm(expression: str) -> Algorithm:
    """What an expression of x and y computes."""
    source = f"""
import numpy as np

def e(x):
    return np.exp(x - x.max(1, keepdims=True))

def softmax(x):
    return e(x) / e(x).sum(1, keepdims=True)

def top(x, count):
    found = np.zeros_like(x)
    np.put_along_axis(found, np.argsort(-x, axis=1, kind="stable")[:, :count], 1.0, axis=1)
    return found

def forward(x, y):
    m, n = np.arange(4)[:, None], np.arange(6)[None, :]
    return {expression}
"""
    return trace_reference(Path("reference.py"), source, INPUTS).algorithm


@pytest.mark.parametrize("one, other", EQUAL)
def test_spellings_of_one_function_have_one_form(one: str, other: str) -> None:
    """Evidence: school algebra; both hold for all real x and y."""
    assert not difference(algorithm(one), algorithm(other))


@pytest.mark.parametrize("one, other", DIFFERENT)
def test_other_functions_have_other_forms(one: str, other: str) -> None:
    """Evidence: each has an x and a y, or a row, that tells them apart."""
    assert difference(algorithm(other), algorithm(one))


def test_an_exponential_is_bounded_by_what_is_taken_off() -> None:
    """Evidence: exp is at most 1 of what is less than its largest, and at most e of a tanh."""
    for text in (
        "softmax(x)",
        "np.exp(np.tanh(x))",
        "np.exp(-np.abs(x))",
        "np.exp(np.minimum(x, 0))",
    ):
        assert not overflow(algorithm(text))
    for text in ("np.exp(x)", "np.exp(x - x.min(1, keepdims=True))", "np.exp(x - y)"):
        assert overflow(algorithm(text))
