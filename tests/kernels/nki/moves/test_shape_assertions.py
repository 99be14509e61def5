"""What a rule wrote says for which shapes it holds, and refuses others when it is traced."""

import ast

import numpy as np
import pytest
from small_problem import KERNEL

from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.moves.propose import rewrites
from accelopt.kernels.nki.moves.surgery.shape_assertions import hold_to_shapes
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.trace import AbstractTensor

X = {"x": ParameterFacts((128, 2, 1024))}


def traced(source, shape):
    space = {}
    exec(source, space)
    return trace_kernel(space["kernel"].func, [AbstractTensor(shape, np.dtype(np.float32))])


def test_another_shape_is_refused_with_a_sentence():
    """A widened silu run on a longer row would leave what it does not reach unwritten."""
    widened = next(c.source for c in rewrites(KERNEL, Facts({}, X)) if c.site.move == "widen")
    held = hold_to_shapes(widened, X)
    assert traced(held, (128, 2, 1024)).results
    with pytest.raises(Exception, match="x must be 128 x 2 x 1024"):
        traced(held, (128, 2, 2048))


def test_it_is_said_once_and_below_the_docstring():
    text = KERNEL.replace("def kernel(x):\n", 'def kernel(x):\n    """Silu."""\n')
    held = hold_to_shapes(text, X)
    assert held.count("assert x.shape == (128, 2, 1024)") == 1
    assert hold_to_shapes(held, X) == held
    other = held.replace("x.shape ==", "tuple(x.shape) ==")
    assert hold_to_shapes(other, X) == other
    function = ast.parse(held).body[-1]
    assert ast.get_docstring(function) == "Silu."
    assert held.replace(held.splitlines(keepends=True)[7], "") == text


def test_long_names_keep_to_the_width_of_a_line():
    name = "a_parameter_with_quite_a_long_name_for_a_kernel"
    text = f"def kernel({name}):\n    return {name}\n"
    held = hold_to_shapes(text, {name: ParameterFacts((128, 128, 2048))})
    ast.parse(held)
    assert max(map(len, held.splitlines())) <= 100


@pytest.mark.parametrize("text", ["", "def kernel(y):\n    return y\n", "def (", "kernel = 3\n"])
def test_what_holds_no_such_kernel_stays(text):
    assert hold_to_shapes(text, X) == text
