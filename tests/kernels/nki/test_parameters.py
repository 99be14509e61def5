"""Shapes that are read from a reference's text are those that it makes, or are not told."""

from __future__ import annotations

import pytest

from accelopt.kernels.nki.parameters import kernel_arguments

KERNEL = "def kernel(x):\n    return x\n"

TOLD = {
    "a broadcast": ("np.random.randn(8, 1) * np.random.randn(1, 4)", (8, 4), "float64"),
    "whole numbers": ("np.random.randint(0, 9, (8, 4))", (8, 4), "int64"),
    "a helper": ("drawn(8, 4)", (8, 4), "float32"),
}
UNTOLD = {
    "a product": "np.random.randn(8, 4) @ np.random.randn(4, 2)",
    "two formats": "np.random.randn(8, 4).astype(np.float32) * np.random.randn(8, 4)",
    "arguments by name": "drawn(8, columns=4)",
    "too many arguments": "drawn(8, 4, 2)",
    "no shape at all": "np.random.randn(8, 4).reshape(5, 5)",
}
HELPER = (
    "\n\ndef drawn(rows, columns):\n    return np.random.randn(rows, columns).astype(np.float32)\n"
)


def reference(expression: str) -> str:
    return f"import numpy as np\n\n\ndef get_inputs():\n    return [{expression}]\n{HELPER}"


@pytest.mark.parametrize("name", TOLD)
def test_shape_and_format_are_those_that_numpy_gives(name: str) -> None:
    expression, shape, dtype = TOLD[name]
    found = kernel_arguments(KERNEL, reference(expression))["x"]
    assert (found.shape, found.dtype) == (shape, dtype)


@pytest.mark.parametrize("name", UNTOLD)
def test_what_is_not_clear_is_not_told(name: str) -> None:
    assert kernel_arguments(KERNEL, reference(UNTOLD[name])) == {}
