"""Helper functions written out where they are called, and those that are left alone."""

import pytest

from accelopt.kernels.nki.moves.inlining import Inline
from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.reading.source import parse

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

SCALE = 2.0

"""
KERNEL = """

@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        {line}
    return out
"""
STORE = "nl.store(out[i], value=twice(nl.load(x[i])))"


def inlined(helper, line=STORE):
    """The body of the loop after the move; None when no helper may be written out."""
    kernel = parse(HEADER + helper + KERNEL.format(line=line))
    options = [*Inline().options(kernel, Facts())]
    if not options:
        return None
    text = options[0].make().render()
    return [part.strip() for part in text.partition("range(4):\n")[2].splitlines()[:-1]]


def test_arguments_steps_and_result_get_names_that_are_free():
    helper = "def twice(a):\n    t = nl.multiply(a, SCALE)\n    return nl.exp(t)\n"
    assert inlined(helper) == [
        "a_1 = nl.load(x[i])",
        "t_1 = nl.multiply(a_1, SCALE)",
        "twice_1 = nl.exp(t_1)",
        "nl.store(out[i], value=twice_1)",
    ]
    assert inlined(helper, "t = nl.load(x[i]); y = twice(a=t)") == [
        "t = nl.load(x[i])",
        "t_1 = nl.multiply(t, SCALE)",
        "y = nl.exp(t_1)",
    ]


def test_a_call_in_a_call_is_written_out_first():
    helper = "def twice(a):\n    return nl.multiply(a, 2.0)\n"
    assert inlined(helper, "y = twice(twice(x[i]))") == [
        "a_1 = x[i]",
        "twice_1 = nl.multiply(a_1, 2.0)",
        "y = nl.multiply(twice_1, 2.0)",
    ]


def test_a_step_that_assigns_its_argument_leaves_the_callers_value():
    helper = "def twice(a):\n    a = nl.multiply(a, 2.0)\n    return a\n"
    line = "t = nl.load(x[i]); y = twice(t); nl.store(out[i], value=nl.add(t, y))"
    assert inlined(helper, line) == [
        "t = nl.load(x[i])",
        "a_1 = t",
        "a_2 = nl.multiply(a_1, 2.0)",
        "y = a_2",
        "nl.store(out[i], value=nl.add(t, y))",
    ]


@pytest.mark.parametrize(
    "helper",
    [
        "def twice(a):\n    nl.store(a, value=1.0)\n    return a\n",
        "def twice(a):\n    a[...] = nl.exp(a)\n    return a\n",
        "def twice(a):\n    a += 1.0\n    return a\n",
        "def twice(a):\n    b = nisa.activation(nl.exp, a, reduce_res=a)\n    return b\n",
        "def twice(a):\n    b = other(a)\n    return b\n",
        "def twice(a):\n    if SCALE:\n        return a\n    return nl.exp(a)\n",
        "def twice(a, b=1.0):\n    return nl.multiply(a, b)\n",
        "def twice(*a):\n    return nl.exp(a[0])\n",
        "def twice(a, b):\n    return nl.exp(a)\n",
        "def twice(a):\n    return nl.exp(out)\n",
        "@nki.jit\ndef twice(a):\n    return nl.exp(a)\n",
        "def twice(a):\n    return (lambda: nl.exp(a))()\n",
    ],
)
def test_what_could_mean_something_else_is_left_alone(helper):
    assert inlined(helper) is None


@pytest.mark.parametrize(
    "line", ["y = [twice(t) for t in x]", "y = twice(x) if i else x", "y = lambda: twice(x)"]
)
def test_a_call_that_may_not_be_evaluated_once_is_left_alone(line):
    assert inlined("def twice(a):\n    return nl.exp(a)\n", line) is None
