"""`scripts/conformance.py` on a suite of our own: what passes, what is missing, what pytest is told."""

import subprocess
import sys

KERNEL = """
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit(mode="simulation")
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(a)))
    return out
"""

GOOD = """
import numpy as np
from own_kernels import doubled

def test_doubles():
    a = np.ones((128, 4), np.float32)
    assert (doubled(a) == 2).all()

def test_draws():
    print(np.random.random())
    assert np.random.random() < 0.72  # seed 0: 0.5488 is printed, 0.7152 drawn
"""


def conformance(*arguments):
    command = [sys.executable, "scripts/conformance.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


def suite(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "own_kernels.py").write_text(KERNEL)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_good.py").write_text(GOOD)
    (tmp_path / "tests" / "test_lacking.py").write_text("import not_on_this_machine_x\n")
    return tmp_path / "tests"


def test_what_a_suite_lacks_is_named_with_what_to_do(tmp_path):
    """An import that fails says how to bring the module: a folder beside the suite, or pip."""
    tests = suite(tmp_path)
    status, said = conformance(tests)
    assert status == 1
    assert f"needs own_kernels, which lies in {tmp_path / 'src'}: add --path" in said
    assert "-m pip install not_on_this_machine_x" in said
    assert "2 missing" in said


def test_flags_go_to_pytest_and_draws_are_seeded(tmp_path):
    """Two tests pass, draws included; with -k one is left."""
    good = suite(tmp_path) / "test_good.py"
    path = ("--path", tmp_path / "src")
    assert conformance(good, *path) == (0, "2 pass\n")
    assert conformance(good, *path, "--", "-k", "doubles") == (0, "1 pass\n")
