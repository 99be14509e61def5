"""The sheet of NKI calls: a note for every public name, with the simulated core's own signature, and
idioms that the simulated core takes."""

import re

import numpy as np
import pytest

from accelopt.kernels.nki import names
from accelopt.sim.kernel_text import load
from accelopt.sim.nki import isa, language
from accelopt.sim.nki.kernel import trace_kernel
from accelopt.sim.trace import TensorSpec

SCAFFOLD = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

@nki.jit
def kernel(h):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.load(h)
    s = a = b = decay = x
    minus_max = mean = rstd = nl.copy(x[:, 0:1])
    i_p, i_f = nl.mgrid[0:128, 0:128]
    {}
    nl.store(out, x)
    return out
"""


def idioms():
    """Every assignment in backticks that calls an instruction of its own entry."""
    for name, note in names._notes().items():
        code = [text for text in re.findall(r"`([^`]+)`", note) if " = " in text]
        if name.startswith("nisa.") and any(f"{name}(" in text for text in code):
            yield pytest.param("; ".join(t for t in code if "[k]" not in t), id=name)


def test_every_public_name_has_a_note():
    public = {f"nl.{n}" for n in language.__all__} | {f"nisa.{n}" for n in isa.__all__}
    assert public <= names._notes().keys()
    assert names._notes().keys() - public == {"nki.jit"}


@pytest.mark.parametrize("code", list(idioms()))
def test_idioms_are_taken_by_the_simulated_core(code):
    kernel = load(SCAFFOLD.format(code), "idiom.py").kernel
    trace_kernel(kernel, [TensorSpec((128, 128), np.dtype(np.float32))])


def test_signatures_are_the_cores_own():
    assert "nisa.nc_matmul(stationary, moving): " in names.describe("nc_matmul")
    assert "reduce_res" in names.describe("nisa.activation_reduce").split(":")[0]
    assert names.describe("nl.ndarray").startswith("nl.ndarray(shape, dtype, buffer=None)")


def test_the_sheet_has_what_kernel_and_plan_name_and_what_takes_its_place():
    sheet = names.sheet(
        ["y = nl.matmul(a, b)\n", "Use `affine_select`, add up all of it, and copy."]
    )
    assert "- nl.matmul(" in sheet and "- nisa.nc_matmul(" in sheet
    assert "- nisa.affine_select(" in sheet
    for prose in ("nl.add", "nl.all", "nl.copy"):
        assert f"- {prose}" not in sheet
    assert names.sheet(["x = nl.float32"]) == ""
    assert len(names.sheet([" ".join(f"{n}(" for n in names._notes())])) < 40_000


def test_a_misspelt_name_gets_the_nearest():
    assert "nisa.tensor_tensor" in names.describe("nisa.tensor_tensr")
