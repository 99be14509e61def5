"""`accelopt python`: scripts and suites of one's own, in the vendor's names, on the simulated core."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = """
import numpy as np
import nki
import nki.isa as nisa
import nki.language as nl
import neuronxcc.nki as old
import neuronxcc.nki.language as ol

@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=tile)
    return out

@old.benchmark(warmup=2, iters=3)
def test_kernel(a):
    out = ol.ndarray(a.shape, dtype=a.dtype, buffer=ol.shared_hbm)
    ol.store(out, ol.add(ol.load(a), ol.load(a)))
    return out

@nki.jit
def printed(a):
    nisa.set_rng_seed(a)
    return a
"""
SCRIPT = """
import os, sys
class Named: pass
from own_kernels import doubled, np, nki, test_kernel as measured
a = np.ones((128, 64), np.float32)
assert (doubled(a) == 2).all() and (nki.simulate(doubled)(a) == 2).all()
measured(a)
import pickle
assert sys.argv[0] == "script.py" and __file__ == os.path.abspath("script.py") and pickle.loads(pickle.dumps(Named))
assert not hasattr(nki, "benchmark") and not hasattr(nki, "nothing")
try:
    nki.profile(doubled)
except AttributeError as error:
    assert "`accelopt python` says what is predicted" in str(error)
print(sys.argv[1:], __name__, measured.benchmark_result.nc_latency.get_latency_percentile(50) > 0)
raise {"0": SystemExit(7), "1": ValueError("one")}[sys.argv[-1]]
"""
SUITE = """
import numpy as np
from own_kernels import doubled, printed, test_kernel

def test_doubles():
    assert (doubled(np.ones((128, 4), np.float32)) == 2).all()

def test_draws():
    print(np.random.random())
    assert np.random.random() < 0.72  # seed 0: 0.5488 is printed, 0.7152 drawn

def test_lacks():
    printed(np.ones((128, 4), np.float32))
"""


def run(folder, *arguments, **environment):
    """Exit status, output and errors of the command in `folder`."""
    command = [str(Path(sys.executable).with_name("accelopt")), "python", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=folder,
        env={**os.environ, **environment},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_a_script_runs_as_under_python_and_its_kernels_are_timed(tmp_path):
    """Arguments, `__name__`, the exit status and the traceback are Python's; `nki.jit`, `nki.simulate` and
    `neuronxcc.nki.benchmark` run; each kernel's time is said to be predicted, on the generation that the
    vendor's variable asks for (SDK 2.32, guide of the CPU simulator: `gen4` is trn3)."""
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    (tmp_path / "script.py").write_text(SCRIPT)
    status, said, errors = run(tmp_path, "script.py", "--target", "-q", "0")
    assert status == 7 and said == "['--target', '-q', '0'] __main__ True\n"
    head, _, table = errors.partition("simulated: what accelopt predicts")
    assert not head.strip() and "nothing here was measured" in table
    rows = [line.split(None, 3) for line in table.splitlines()[2:]]
    assert [(row[0], row[2], row[3].split(" at ")[0]) for row in rows] == [
        ("2", "ms", "doubled(a: float32[128, 64]) on trn2,"),
        ("1", "ms", "test_kernel(a: float32[128, 64]) on trn1,"),
    ]
    assert all(0.001 < float(row[1]) < 1 for row in rows)
    chosen = {"NEURON_PLATFORM_TARGET_OVERRIDE": "gen3"}
    status, _, errors = run(tmp_path, "--no-times", "script.py", "1", **chosen)
    assert status == 1 and "predict" not in errors
    assert errors.startswith("Traceback (most recent call last):\n  File")
    assert errors.count("  File") == 1 and errors.endswith("ValueError: one\n")
    assert run(tmp_path, "script.py", "1", **chosen)[2].count("on trn2") == 2


@pytest.mark.slow
def test_a_suite_is_pytests_and_says_what_the_core_lacks(tmp_path):
    """Words after `-m pytest` are pytest's; draws are seeded where that is asked for; what the simulated
    core does not have (`nisa.set_rng_seed`) is no failure and no pass; a kernel is no test."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "own_kernels.py").write_text(KERNELS)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_good.py").write_text(SUITE)
    suite = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "tests")
    path = {"PYTHONPATH": "src"}
    status, said, errors = run(tmp_path, "--seed", 0, *suite, **path)
    assert status == 0 and "2 passed, 1 unsupported" in said
    assert "UNSUPPORTED tests/test_good.py::test_lacks - [unsupported]" in said
    assert "set_rng_seed" in said and "1  " in errors and "doubled" in errors
    status, said, _ = run(tmp_path, *suite, "-k", "doubles", "-n", "1", **path)
    assert status == 0 and "1 passed" in said and "unsupported" not in said
    (tmp_path / "tests" / "test_lacking.py").write_text("import not_on_this_machine_x\n")
    (tmp_path / "tests" / "test_absent.py").write_text("import nki.kernels_of_tomorrow\n")
    status, said, _ = run(tmp_path, *suite)
    assert "UNSUPPORTED tests/test_absent.py - [unsupported]" in said and "2 errors" in said
    assert status == 2  # as pytest ends where a file cannot be imported
    assert f"needs own_kernels, which lies in {tmp_path / 'src'}: set PYTHONPATH" in said
    assert "-m pip install not_on_this_machine_x" in said
    (tmp_path / "tests" / "test_absent.py").write_text("import src.gone.too\n")
    said = run(tmp_path, *suite, **path)[1]
    assert f"needs src.gone, which {tmp_path / 'src'} does not have" in said


def test_what_cannot_be_run_is_one_sentence(tmp_path):
    """A script that is not there, no module, and an unknown generation."""
    for words, said in (
        (("nowhere.py",), "nowhere.py is not a file; a module is run with -m"),
        (("-m",), "-m needs the name of a module"),
        (("--target", "gen9", "x.py"), "no target 'gen9'"),
    ):
        status, _, errors = run(tmp_path, *words)
        assert status == 1 and errors.startswith("error: ") and said in errors


TENSORS = """
import sys
import numpy as np
from own_kernels import doubled
if sys.argv[1] == "torch":
    import torch
    made = [torch.ones(128, 4, dtype=torch.bfloat16), torch.ones(4, 128, dtype=torch.bfloat16).T, torch.ones(4, 128).T]
else:
    import jax
    made = [jax.numpy.ones((128, 4))]
for one in made:
    found = doubled(one)
    assert type(found) is type(one) and found.dtype == one.dtype and bool((found == 2).all())
"""


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_kernels_take_tensors_of_torch_and_jax(tmp_path, framework):
    """Results are of the arguments' framework (SDK 2.32, `nki.simulate`: "NumPy arrays or torch Tensors
    respectively"); bfloat16 goes through its bits."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    (tmp_path / "script.py").write_text(TENSORS)
    status, _, errors = run(tmp_path, "--no-times", "script.py", framework)
    assert status == 0, errors


def test_a_script_for_a_neuron_device_of_torch_runs_on_the_host(tmp_path):
    """torch_xla, which brings tensors to the device (SDK 2.32, `nki/examples/*_torch.py`), is the host's
    memory where it is not installed."""
    there = {name: importlib.util.find_spec(name) is not None for name in ("torch", "torch_xla")}
    if there != {"torch": True, "torch_xla": False}:
        pytest.skip("torch is not installed, or a real torch_xla is")
    (tmp_path / "own_kernels.py").write_text(KERNELS)
    (tmp_path / "script.py").write_text(
        "import torch, torch_xla\nfrom torch_xla.core import xla_model as xm\n"
        "from own_kernels import doubled\n"
        "a = torch.ones((128, 4), dtype=torch.bfloat16).to(torch_xla.device())\n"
        "found = doubled(a.to(xm.xla_device()))\nxm.mark_step()\ntorch_xla.sync()\n"
        "print(found.dtype, bool((found == 2).all()))\n"
    )
    assert run(tmp_path, "--no-times", "script.py")[:2] == (0, "torch.bfloat16 True\n")
