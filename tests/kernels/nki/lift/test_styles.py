"""Kernels in everyday styles lift to their problem, whatever the style, and compute the same."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from accelopt.algorithm.notation import algorithm_text
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.sim import standin
from accelopt.sim.compute.executor import execute
from accelopt.sim.dialects.neuronxcc.kernel import trace_kernel
from accelopt.sim.trace import AbstractTensor
from tests.algorithm.evaluation import evaluate

standin.install(always=True)
_SPEC = importlib.util.spec_from_file_location(
    "lift_styles", Path(__file__).with_name("lift_styles.py")
)
styles = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(styles)


def traced(kernel, shapes):
    specs = [AbstractTensor(shape, np.dtype(np.float32)) for shape in shapes]
    return trace_kernel(kernel, specs, {}, target="trn1")


@pytest.mark.parametrize("kernel", styles.STYLES, ids=lambda kernel: kernel.__name__)
def test_a_style_is_told_from_a_problem(kernel):
    """Evaluated in fp32, where roundings to bfloat16 count; against the executor to fp32."""
    shapes, expected = styles.STYLES[kernel]
    program = traced(kernel, shapes)
    algorithm = lift(program)
    assert (
        "\n".join(line.strip() for line in algorithm_text(algorithm).splitlines()[1:-1]) == expected
    )
    rng = np.random.default_rng(5)
    for scale in (1.0, 1e-3, 5.0):
        arrays = [(rng.normal(size=shape) * scale).astype(np.float32) for shape in shapes]
        named = {t.name: array for t, array in zip(program.arguments, arrays, strict=True)}
        results = evaluate(algorithm, named, np.float32)
        for found, wanted in zip(results, execute(program, arrays), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=5e-6 * np.abs(wanted).max())


REFUSALS = {
    styles.random_numbers: "it draws random numbers",
    styles.eight_replaced: "it searches for values and replaces them",
    styles.turned_around: "what this loop carries from one iteration to the next",
}


@pytest.mark.parametrize("kernel", REFUSALS, ids=lambda kernel: kernel.__name__)
def test_what_has_no_algorithm_is_refused_with_its_line(kernel):
    with pytest.raises(NotLifted, match=REFUSALS[kernel]) as caught:
        lift(traced(kernel, [(128, 64)]))
    first = kernel.__code__.co_firstlineno
    assert Path(caught.value.source.file).name == "lift_styles.py"
    assert first < caught.value.source.line < first + 12
