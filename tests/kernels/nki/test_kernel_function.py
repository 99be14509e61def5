"""Which function of a file is the kernel: by the text, by the file when it has run, and by its trace.

The forms are those of public kernel files (several decorated functions, `kernel = name[grid]`, kernels
made inside of functions, host functions that launch a grid), written anew.
"""

import numpy as np
import pytest
from warm import core

from accelopt.kernels.nki.actions.primitive_answers import nest_of
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import KernelFailure, TensorArgument
from accelopt.kernels.nki.kernel_function import (
    NoKernel,
    kernel_function,
    kernel_parameters,
    traced_function,
)
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel

IMPORTS = """import functools
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

"""
HELPED = """
@nki.jit
def loaded(x, start):
    return nl.load(x[nl.ds(start, 128), :])


"""
BODY = """    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(x.shape[0] // 128):
        nl.store(out[nl.ds(row * 128, 128), :], nl.multiply(LOAD, scale))
    return out
"""
PLAIN = BODY.replace("LOAD", "nl.load(x[nl.ds(row * 128, 128), :])")
GRID = """    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    start = (nl.program_id(0) * PROGRAMS + nl.program_id(1)) * 128
    nl.store(out[nl.ds(start, 128), :], nl.multiply(nl.load(x[nl.ds(start, 128), :]), scale))
    return out
"""
OTHER = """
@nki.jit
def halved(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in nl.affine_range(x.shape[0] // 128):
        nl.store(out[nl.ds(row * 128, 128), :], nl.load(x[nl.ds(row * 128, 128), :]) * 0.5)
    return out


"""
SCALED = "@nki.jit\ndef scaled(x, scale=3.0):\n" + PLAIN
OF_GRID = "@nki.jit\ndef scaled(x, scale=3.0):\n" + GRID.replace(
    " * PROGRAMS + nl.program_id(1)", ""
)
OF_TWO = "@nki.jit\ndef scaled(x, scale=3.0):\n" + GRID.replace("PROGRAMS", "2")
FACTORY = "def make(scale):\n    @nki.jit\n" + "".join(
    f"    {line}\n" for line in ("def scaled(x):\n" + PLAIN).splitlines()
)

FORMS = {
    "named": IMPORTS + OTHER + SCALED + "\n\nkernel = scaled\n",
    "grid": IMPORTS + OTHER + OF_GRID + "\n\nkernel = scaled[4]\n",
    "grid of two": IMPORTS + OTHER + OF_TWO + "\n\nkernel = scaled[2, 2]\n",
    "its own name": IMPORTS + OF_GRID + "\n\nscaled = scaled[4]\n",
    "factory": IMPORTS + OTHER + FACTORY + "    return scaled\n\n\nkernel = make(3.0)\n",
    "partial": IMPORTS + OTHER + SCALED + "\n\nkernel = functools.partial(scaled, scale=3.0)\n",
    "jit later": IMPORTS
    + OTHER
    + SCALED.replace("@nki.jit\n", "")
    + "\n\nkernel = nki.jit(scaled)\n",
    "helper": IMPORTS + HELPED + SCALED.replace(PLAIN, BODY.replace("LOAD", "loaded(x, row * 128)")),
    "shared helper": IMPORTS
    + HELPED
    + "def other(x):\n    return loaded(x, 0)\n\n\n"
    + SCALED.replace(PLAIN, BODY.replace("LOAD", "loaded(x, row * 128)")),
    "options": IMPORTS + SCALED.replace("@nki.jit", "@nki.jit(mode='trace')", 0)
    .replace("@nki.jit\n", "@nki.compiler.skip_middle_end_transformations\n@nki.jit()\n"),
    "host": IMPORTS
    + OF_GRID
    + "\n\ndef run(x):\n    rows = x.shape[0] // 128\n    return scaled[rows](x)\n",
    "named host": IMPORTS
    + OTHER
    + OF_GRID
    + "\n\ndef kernel(x):\n    out = scaled[4](x)\n    return out\n",
}  # fmt: skip
X = TensorArgument((512, 256), "float32")


def compiled(tmp_path, source, arguments=(X,)):
    path = tmp_path / "kernel.py"
    path.write_text(source)
    return core().compile(str(path), arguments)


@pytest.mark.parametrize("form", FORMS)
def test_text_and_trace_agree_on_the_kernel(form, tmp_path):
    """Assumption: a file's kernel is what its `kernel` names, else the decorated function that no
    other one calls, launched as its host function launches it."""
    source = FORMS[form]
    program = compiled(tmp_path, source).program
    found = kernel_function(source)
    assert found.name == "scaled" == program.name
    assert traced_function(source, program.source.line) == found
    assert kernel_parameters(source)[0] == "x"
    x = np.arange(512 * 256, dtype=np.float32).reshape(512, 256)
    [result] = compiled(tmp_path, source).run([x])
    np.testing.assert_array_equal(result, 3 * x)


@pytest.mark.parametrize("form", FORMS)
def test_a_schedule_takes_the_place_of_the_kernel_alone(form, tmp_path):
    """A winner keeps the rest of the module and how the kernel is bound; the grid is gone with the
    programs. The results stay those of the kernel."""
    source = FORMS[form]
    path = tmp_path / "written.py"
    path.write_text(source)
    given = {"x": ParameterFacts((512, 256))}
    lifted = lifted_kernel(source, path, given)
    schedule = nest_of(None, lifted, "trn1").nest
    made = lifted.authored(lifted.lowered(schedule).source)
    assert kernel_function(made).name == "scaled"
    assert ("def halved" in made) == ("def halved" in source)
    assert ("kernel = " in made) == ("kernel = " in source or form == "shared helper")
    x = np.arange(512 * 256, dtype=np.float32).reshape(512, 256)
    [result] = compiled(tmp_path, made).run([x])
    np.testing.assert_allclose(result, 3 * x, rtol=1e-6)


def test_several_kernels_are_refused_with_the_line_to_write(tmp_path):
    """Assumption: of several kernels none is guessed."""
    source = IMPORTS + OTHER + SCALED
    with pytest.raises(
        KernelFailure, match=r"several kernels \(halved and scaled\).*kernel = scaled"
    ):
        compiled(tmp_path, source)
    with pytest.raises(NoKernel, match=r"kernel = scaled"):
        kernel_function(source)


def test_a_host_function_with_work_of_its_own_is_refused_with_the_line_to_write(tmp_path):
    """A Program has the tensors that it was asked for, in their order: what a host function makes of
    them before a launch is not in it."""
    source = (
        IMPORTS
        + OF_GRID.replace("x, scale=3.0", "x, y, scale=3.0")
        + "\n\ndef run(x, y):\n    return scaled[4](y, x)\n"
    )
    with pytest.raises(KernelFailure, match=r"run does not launch .* `kernel = name\[grid\]`"):
        compiled(tmp_path, source, (X, TensorArgument((512, 256), "float32")))
