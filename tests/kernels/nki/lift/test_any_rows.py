"""Kernels by schedule take any number of rows where only trip counts depend on them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.lift.any_rows import for_any_rows
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.lifted import Lifted, lifted_kernel
from accelopt.kernels.nki.lift.schedule import Schedule
from accelopt.kernels.nki.lift.search import schedules
from accelopt.kernels.nki.nests.nest import Nest, Part, Stage
from accelopt.kernels.nki.parameters import ParameterFacts

NORM = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def norm(x, w):
    out = nl.ndarray((1024, 256), dtype=nl.float32, buffer=nl.shared_hbm)
    g = nl.load(w).broadcast_to((128, 256))
    for i in nl.affine_range(8):
        rows = nl.load(x[nl.ds(i * 128, 128), :])
        total = nl.sum(nl.square(rows), axis=1, keepdims=True)
        nl.store(out[nl.ds(i * 128, 128), :], rows * nl.rsqrt(total / 256 + 1e-5) * g)
    return out
"""


def lifted(folder: Path, text: str) -> Lifted:
    """What the kernel of a text computes."""
    path = folder / "kernel.py"
    path.write_text(text)
    given = {"x": ParameterFacts((1024, 256)), "w": ParameterFacts((1, 256))}
    return lifted_kernel(text, path, given)


@pytest.mark.parametrize("nested", [False, True])
def test_rows_are_those_of_the_argument(nested: bool, tmp_path: Path) -> None:
    """Evidence: the simulated core's numbers against NumPy, for three numbers of rows."""
    found = lifted(tmp_path, NORM)
    schedule: Schedule | Nest = next(schedules(graph_of(found.algorithm)))
    if nested:
        stage = Stage(members=("total", "out"), partition=(Part(axis="m", size=128),))
        schedule = Nest(stages=(stage,))
    source = for_any_rows(found, schedule, found.lowered(schedule).source, "trn1")
    assert "1024" not in source and "x.shape[0] // 128" in source
    path = tmp_path / "any.py"
    path.write_text(found.authored(source))
    random = np.random.default_rng(0)
    for rows in (128, 384, 1024):
        x = random.standard_normal((rows, 256)).astype(np.float32)
        w = random.standard_normal((1, 256)).astype(np.float32)
        arguments = [TensorArgument(a.shape, "float32") for a in (x, w)]
        (got,) = SimulatedDevice("trn1").compile(str(path), arguments).run([x, w])
        wanted = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * w
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(KernelFailure, match="multiple of 128"):
        SimulatedDevice("trn1").compile(
            str(path), [TensorArgument((100, 256), "float32"), arguments[1]]
        )


def test_a_kernel_that_combines_rows_keeps_their_number(tmp_path: Path) -> None:
    """Evidence: a product whose operand is kept for all rows takes room for as many as there are."""
    text = NORM.replace(
        "rows * nl.rsqrt(total / 256 + 1e-5) * g", "rows * nl.load(x[nl.ds(0, 128), :]) * g"
    )
    found = lifted(tmp_path, text)
    schedule = next(schedules(graph_of(found.algorithm)), None)
    if schedule is not None:
        source = found.lowered(schedule).source
        assert for_any_rows(found, schedule, source, "trn1") == source
