"""The sheet of NKI calls in either dialect: a note for every public name, with the simulated core's own
signature, and idioms that the simulated core takes."""

import re
from importlib import import_module

import numpy as np
import pytest

from accelopt.kernels.nki import api_notes as names
from accelopt.sim.dialects.dialect import DIALECTS, trace_kernel
from accelopt.sim.kernel_loading import load
from accelopt.sim.trace import AbstractTensor

SCAFFOLD = """
import {package} as nki
import {package}.isa as nisa
import {package}.language as nl
import numpy as np

@nki.jit
def kernel(h):
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    x = nl.load(h)
    s = a = b = decay = x
    minus_max = mean = rstd = nl.copy(x[:, 0:1])
    {more}
    {code}
    nl.store(out, x)
    return out
"""
PACKAGES = {"neuronxcc": "neuronxcc.nki", "nki": "nki"}
MORE = {
    "neuronxcc": "i_p, i_f = nl.mgrid[0:128, 0:128]",
    "nki": "total, y = (nl.ndarray((128, n), dtype=nl.float32) for n in (1, 128))",
}


def idioms():
    """Every statement in backticks that calls an instruction of its own entry, or assigns; with a
    destination, of every entry."""
    for dialect in DIALECTS:
        for name, note in names._notes(dialect).items():
            code = [t for t in re.findall(r"`([^`]+)`", note) if " = " in t or "nisa." in t]
            own = name.startswith("nisa.") or dialect == "nki"
            if own and any(f"{name}(" in text for text in code):
                text = "; ".join(t for t in code if "[k]" not in t)
                yield pytest.param(dialect, text, id=f"{dialect}-{name}")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_public_name_has_a_note(dialect):
    rooms = {"nl": "language", "nisa": "isa"}
    public = {f"{short}.{name}" for short, room in rooms.items()
              for name in import_module(f"{names.PACKAGES[dialect]}.{room}").__all__}  # fmt: skip
    noted = names._notes(dialect).keys()
    assert public <= noted
    assert noted - public == {"nki.jit"}


@pytest.mark.parametrize("dialect, code", list(idioms()))
def test_idioms_are_taken_by_the_simulated_core(dialect, code):
    text = SCAFFOLD.format(package=PACKAGES[dialect], more=MORE[dialect], code=code)
    kernel = load(text, "idiom.py").kernel
    trace_kernel(kernel, [AbstractTensor((128, 128), np.dtype(np.float32))])


def test_notes_of_nki_say_nothing_that_only_the_older_dialect_has():
    for name, note in names._notes("nki").items():
        assert not re.search(
            r"mask=|par_dim|nl\.arange|mgrid|np\.\w+\b|sequential_range\b.*symbolic", note
        ), name
        assert not re.search(r"= nisa\.\w+\(", note), name


def test_signatures_are_the_cores_own():
    assert "nisa.nc_matmul(stationary, moving): " in names.describe("nc_matmul")
    assert "reduce_res" in names.describe("nisa.activation_reduce").split(":")[0]
    assert names.describe("nl.ndarray").startswith("nl.ndarray(shape, dtype, buffer=None)")
    new = names.describe("nc_matmul", "nki")
    assert new.startswith("nisa.nc_matmul(dst, stationary, moving, accumulate=None): ")
    assert "engine=unknown" in names.describe("tensor_copy", "nki")
    assert "nl.arange" not in names.describe("arange", "nki").partition("Near")[0]


def test_the_sheet_has_what_kernel_and_plan_name_and_what_takes_its_place():
    sheet = names.sheet(
        ["y = nl.matmul(a, b)\n", "Use `affine_select`, add up all of it, and copy."]
    )
    assert "- nl.matmul(" in sheet and "- nisa.nc_matmul(" in sheet
    assert "- nisa.affine_select(" in sheet
    for prose in ("nl.add", "nl.all", "nl.copy"):
        assert f"- {prose}" not in sheet
    assert names.sheet(["x = nl.float32"]) == ""
    new = names.sheet(["y = nl.matmul(a, b)"], "nki")
    assert "- nisa.nc_matmul(dst, " in new and "loop_reduce" not in new
    assert len(names.sheet([" ".join(f"{n}(" for n in names._notes("neuronxcc"))])) < 40_000


def test_a_misspelt_name_gets_the_nearest():
    assert "nisa.tensor_tensor" in names.describe("nisa.tensor_tensr")
