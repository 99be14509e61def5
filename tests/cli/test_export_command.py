"""`accelopt export`: the files that it writes run where the framework is, without and with `nki`."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from kernel_heads import neuronxcc_of, nki_of
from typer.testing import CliRunner

from accelopt.cli.app import app, command
from accelopt.errors import ConfigError

ACCELOPT = Path(sys.executable).with_name("accelopt")
KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl
from scaling import FACTOR

@nki.jit
def kernel(x, y, scale):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tops = nl.ndarray((256, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(2):
        rows = slice(n * 128, n * 128 + 128)
        tile = nl.load(x[rows])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=scale * FACTOR)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(y[rows]), op=nl.add)
        nl.store(out[rows], tile)
        nl.store(tops[rows], nl.max(tile, axis=1, keepdims=True))
    return out, tops
"""
REFERENCE = """
import numpy as np

def get_inputs():
    return [np.random.normal(size=(4, 64, 96)).astype(np.float32), 3.0,
            np.random.normal(size=(256, 96)).astype(np.float32)]

def forward(x, scale, y):
    found = x.reshape(256, 96) * np.float32(2 * scale) + y
    return found.reshape(4, 64, 96).transpose(0, 2, 1), found.max(axis=1)

def transform_to_nki_inputs(inputs):
    return [inputs[0].reshape(256, 96), inputs[2], inputs[1]]

def transform_nki_outputs(k_res, ref):
    return [k_res[0].reshape(4, 64, 96).transpose(0, 2, 1), k_res[1][:, 0]]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "scaling.py").write_text("FACTOR = 2\n")
    (folder / "reference.py").write_text(REFERENCE)
    return folder


def export(folder, *options):
    command(["export"])
    files = [str(folder / "kernel.py"), "--reference", str(folder / "reference.py")]
    return CliRunner().invoke(app, ["export", *files, *options])


def ran(folder, *words):
    """Python, or a program beside it, that has ended in a folder."""
    program = [] if words[0] == ACCELOPT else [sys.executable]
    command = [*program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)


def needs(framework):
    """Skips a test where it is not installed. Where it is, it is imported in a process of its own: its
    threads and our forks do not go together."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_an_operation_runs_without_the_sdk_and_its_kernel_on_the_simulated_core(
    files, tmp_path, framework
):
    """Two results, a plain number, rearranged arguments and results, a file of the kernel's folder: the test
    beside the operation passes with plain pytest, its part of the kernel skipped where there is no `nki`, and
    whole with the simulated core."""
    needs(framework)
    made = export(files, f"--{framework}", "--name", "mixed", "-o", str(tmp_path / "op"))
    assert made.exit_code == 0, made.exception
    assert {path.name for path in (tmp_path / "op").iterdir()} == {
        "kernel.py", "reference.py", "scaling.py", f"mixed_{framework}.py", f"test_mixed_{framework}.py",
    }  # fmt: skip
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "op"]
    for program, passed in (((), "2 passed, 1 skipped"), ((ACCELOPT, "python"), "3 passed")):
        done = ran(tmp_path, *program, *test)
        assert done.returncode == 0 and passed in done.stdout, done.stdout
    assert "kernel(x: float32[256, 96], y: float32[256, 96])" in done.stderr


CHECKED = """
import torch
from checked_torch import by_reference
given = (torch.randn(4, 64, 96), 3.0, torch.randn(256, 96))
for kind in ("test_schema", "test_faketensor"):
    torch.library.opcheck(by_reference, given, test_utils=kind)
"""


def test_a_function_of_torch_compiles_with_it(files, tmp_path):
    """torch.library's own check of a custom operation: schema, shapes without data, and what it writes."""
    needs("torch")
    assert export(files, "--torch", "--name", "checked", "-o", str(tmp_path)).exit_code == 0
    done = ran(tmp_path, "-c", CHECKED)
    assert done.returncode == 0, done.stderr


def test_the_files_are_python_and_say_what_is_rearranged(files, tmp_path):
    """Without either framework: both operations call the kernel with the reference's transforms written out."""
    assert export(files, "--torch", "--jax", "--name", "op", "-o", str(tmp_path)).exit_code == 0
    for file in tmp_path.glob("*.py"):
        compile(file.read_text(), file.name, "exec")
    for framework, permute in (("torch", "permute"), ("jax", "transpose")):
        text = (tmp_path / f"op_{framework}.py").read_text()
        assert '_load("kernel").kernel(a0.reshape((256, 96)), a2, a1)' in text
        assert f"return (o0.reshape((4, 64, 96)).{permute}((0, 2, 1)), o1.reshape((256,)))" in text


OLDER = neuronxcc_of("x")("""
nl.store(out, nl.load(x))
""")
SAME = """
import ml_dtypes
import numpy as np

def get_inputs():
    return [np.ones((128, 64), ml_dtypes.{dtype})]

def forward(x):
    return x
"""


def test_the_test_of_a_kernel_of_neuronxcc_asks_for_no_package_in_one_that_lacks(tmp_path):
    """find_spec("neuronxcc.nki") raises where there is no neuronxcc. Of fp8, PyTorch has e4m3fn and e5m2 alone, and
    the compiler of trn1 and trn2 takes the first as IEEE's e4m3 (NCC_EVRF051 of SDK 2.32)."""
    (tmp_path / "kernel.py").write_text(OLDER)
    for dtype in ("bfloat16", "float8_e4m3"):
        (tmp_path / "reference.py").write_text(SAME.format(dtype=dtype))
        done = export(tmp_path, "--torch", "--name", "op", "-o", str(tmp_path / dtype))
        assert done.exit_code == 0, done.exception
    packed = SAME.replace("ml_dtypes.{dtype}", "PACKED[0]").replace("ml_dtypes", "numpy").replace(
        "import numpy as np", "import numpy as np\nfrom accelopt.sim.dtypes import PACKED")  # fmt: skip
    (tmp_path / "reference.py").write_text(packed)
    (tmp_path / "kernel.py").write_text(ADDS[: ADDS.index("@")] + OLDER[OLDER.index("@") :])
    done = export(tmp_path, "--torch", "--target", "trn3", "-o", str(tmp_path / "packed"))
    assert "a kernel input of float8_e4m3fn_x4 cannot be drawn" in str(done.exception)
    text = (tmp_path / "float8_e4m3" / "op_torch.py").read_text()
    assert "ARGUMENTS = (((128, 64), 'float8_e4m3fn'),)" in text
    text = (tmp_path / "bfloat16" / "test_op_torch.py").read_text()
    [line] = [line for line in text.splitlines() if line.startswith("HAS_NKI")]
    done = ran(tmp_path, "-c", f"import importlib.util, sys\n{line}\nprint(HAS_NKI)")
    assert done.stdout.strip() in ("True", "False"), done.stderr


MOVED = """
import numpy as np

def get_inputs():
    return [np.random.normal(size=(128, 14)).astype(np.float32), np.random.normal(size=(16,)).astype(np.float32)]

def forward(x, row):
    return np.pad(x, ((0, 0), (1, 1))) + row + np.float32(0.5)

def transform_to_nki_inputs(inputs):
    x, row = inputs
    half = np.full((128, 16), 0.5, np.float32)
    return [np.pad(x, ((0, 0), (1, 1))), np.broadcast_to(row, (128, 16)), half]
"""
ADDS = nki_of("x, row, half")("""
nl.store(out, nl.add(nl.add(nl.load(x), nl.load(row)), nl.load(half)))
""")


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_padded_repeated_and_constant_arguments_are_written_in_a_frameworks_words(
    tmp_path, framework
):
    """Padding by the framework's own function; an argument of which each element is one of an input's, or a
    constant, by a table that the reference's transform tells, where NumPy alone is there, too."""
    (tmp_path / "kernel.py").write_text(ADDS)
    (tmp_path / "reference.py").write_text(MOVED)
    made = export(tmp_path, f"--{framework}", "--name", "op", "-o", str(tmp_path / "op"))
    assert made.exit_code == 0, made.exception
    text = (tmp_path / "op" / f"op_{framework}.py").read_text()
    pad = {"torch": "torch.nn.functional.pad(a0, (1, 1, 0, 0))", "jax": "jnp.pad(a0, ((0, 0), (1, 1)))"}[framework]  # fmt: skip
    assert f"kernel({pad}, _taken(1, 1, 'float32', a1), _taken(2, 0, 'float32', a0))" in text
    told = {}
    exec(text[text.index("def places") : text.index("@functools")], {"np": np, "Any": object}, told)
    row = np.arange(16, dtype=np.float32)
    at, constant = told["places"](
        lambda given: np.broadcast_to(given[1], (128, 16)), [0 * row, 0 * row], 1
    )
    assert (row[at] == row).all() and not constant.any()
    needs(framework)
    test = ["-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "op"]
    done = ran(tmp_path, ACCELOPT, "python", *test)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout


def test_what_cannot_be_exported_is_one_sentence(files, tmp_path):
    for options, said in (
        ((), "say --torch or --jax"),
        (("--torch", "--name", "my op"), "no name of one"),
    ):
        assert said in str(export(files, *options).exception)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("kernel.py", "scaling.py"):
        (other / name).write_text((files / name).read_text())
    for before, after, said in (
        ("inputs[2], inputs", "inputs[2] * 2, inputs", "argument 1 of the kernel is no input reshaped"),
        ("[1][:, 0]]", "[1][:, 0] + 0.5]", "result 1 is no output of the kernel reshaped"),
        ("(256, 96), inputs[2]", "(256, 96)[:200], inputs[2]", "kernel.py"),
    ):  # fmt: skip
        assert before in REFERENCE
        (other / "reference.py").write_text(REFERENCE.replace(before, after))
        refused = export(other, "--jax", "-o", str(tmp_path / "op"))
        assert isinstance(refused.exception, ConfigError) and said in str(refused.exception)
