"""An instruction that no NeuronCore has, added in the four places of docs/extending.md ("An instruction")
to a copy of the package, is traced, checked, executed, priced, lifted and explained by the commands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import accelopt

PLACES = {
    "sim/isa/elementwise.py": """
TENSOR_MIDDLE = Opcode(
    "tensor_middle", ("data1", "data2"), engines=(Engine.VECTOR,), meaning="the mean of both",
    calls={"tensor_middle": call(("data1", "data2"))}, cost=Cost.TWO_TILES, elementwise=True,
)  # fmt: skip
""",
    "sim/dialects/neuronxcc/isa/elementwise.py": '''
@instruction("data1 data2")
def tensor_middle(result: Result, data1: TensorView, data2: TensorView) -> TensorView:
    """(data1 + data2) / 2."""
    target, left, right = result.alike("tensor_middle", data1.dtype, data1=data1, data2=data2)
    return result.emit(elementwise.TENSOR_MIDDLE, target, {"data1": left, "data2": right})
''',
    "sim/compute/instructions/elementwise.py": '''
def tensor_middle(site: LaneSite) -> Closure:
    """result = (data1 + data2) / 2."""
    left, right = (site.values(site.instruction.inputs[name]) for name in ("data1", "data2"))
    return site.computed(lambda out: np.multiply(left() + right(), 0.5, out))
''',
    "kernels/nki/lift/elementwise.py": '''
def tensor_middle(site: WriteSite) -> Value:
    """`(data1 + data2) / 2`."""
    return site.reaching.values.sum([(site.operand(name), 0.5) for name in ("data1", "data2")])
''',
}
KERNEL = """
import nki
import nki.isa as nisa
import nki.language as nl
@nki.jit
def kernel(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    one, other, middle = [nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf) for _ in range(3)]
    for n in nl.affine_range(4):
        rows = slice(n * 128, n * 128 + 128)
        nisa.dma_copy(dst=one, src=x[rows])
        nisa.dma_copy(dst=other, src=y[rows])
        nisa.tensor_middle(dst=middle, data1=one, data2=other)
        nisa.dma_copy(dst=out[rows], src=middle)
    return out
"""
REFERENCE = """
import numpy as np
get_inputs = lambda: [np.random.normal(size=(512, 512)).astype(np.float32) for _ in range(2)]
forward = lambda x, y: (x + y) / 2
transform_to_nki_inputs = list
transform_nki_outputs = lambda result, reference: result
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Runs Python with the package that has the instruction, beside the kernel and its reference."""
    folder, package = tmp_path_factory.mktemp("made_up"), Path(accelopt.__file__).parent
    shutil.copytree(package, folder / "accelopt")  # compiled, but for what is changed
    for place, text in PLACES.items():
        with (folder / "accelopt" / place).open("a") as file:
            file.write("\n" + text)
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "plain.py").write_text(KERNEL.replace("tensor_middle(", "tensor_tensor(op=nl.add, "))
    (folder / "reference.py").write_text(REFERENCE)
    environment = {**os.environ, "PYTHONPATH": str(folder)}

    def run(*words):
        words = [sys.executable, *words]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_it_is_traced_checked_and_executed(command):
    said = command("-m", "accelopt", "check", "kernel.py", "--reference", "reference.py")
    assert "kernel.py for trn2: passes" in said and "relative L2 error: at most 0," in said


def test_it_is_lifted_and_explained(command):
    said = command("-m", "accelopt", "explain", "kernel.py", "--reference", "reference.py")
    assert "out[m] = x[m] * 0.5 + y[m] * 0.5" in said
    assert "tensor middle, 128 x 512 (vector engine)" in said


def test_it_costs_what_its_class_costs(command):
    """Two operands of all elements, as `tensor_tensor`."""
    said = [command("-m", "accelopt", "profile", name, "--no-search", "--reference", "reference.py")
            for name in ("kernel.py", "plain.py")]  # fmt: skip
    cycles = [re.findall(r"vector +(\S+ ns) +4 .* tensor_\S+ 128x512", text) for text in said]
    assert cycles[0] == cycles[1] and len(cycles[0]) == 1


def test_what_is_said_of_it_is_its_own_docstring(command):
    code = "from accelopt.kernels.nki.api_notes import describe; print(describe('tensor_middle', 'nki'))"
    assert (
        command("-c", code) == "nisa.tensor_middle(dst, data1, data2): dst = (data1 + data2) / 2.\n"
    )
