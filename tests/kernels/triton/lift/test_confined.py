"""Kernels of strangers are lifted in a confined child, whatever their Python does."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from accelopt.algorithm.ir import from_json
from accelopt.algorithm.traced_array import NotTraced
from accelopt.algorithm.well_formed import well_formed
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Workload
from accelopt.kernels.gpu.cases import one_file
from accelopt.kernels.triton.lift.confined import lift_kernel, lift_solution
from accelopt.kernels.triton.lift.lifting import Like, lift_launches
from tests.algorithm.evaluation import evaluate

KERNELS = Path(__file__).with_name("kernels.py")
HEAD = "import os, sys, torch, triton\nimport triton.language as tl\n"
KERNEL = "@triton.jit\ndef k(x, y):\n    tl.store(y, tl.load(x) * 2)\n"
HOST = "def run(x):\n    y = torch.empty_like(x)\n    k[(1,)](x, y)\n    return y\n"
SECONDS = 1.5


def _lifted(text, beside=None, seconds=SECONDS):
    return lift_kernel({"k.py": text, **(beside or {})}, "k.py::run", [Like((1,))], seconds)


def test_the_child_leaves_what_the_tracer_finds():
    """Evidence: the same kernel traced in this process; the lines are those of its own text."""
    given = [Like((3, 48, 16))] * 3
    found = lift_kernel(
        {KERNELS.name: KERNELS.read_text()}, "kernels.py::attention", [*given, True]
    )
    assert found.algorithm == lift_launches(KERNELS, "attention", [*given, True]).algorithm
    text = KERNELS.read_text().splitlines()
    at = {name: text[line.line - 1] for name, line in found.lines.items()}
    assert set(found.lines) == {d.out for d in found.algorithm.definitions}
    assert "tl.dot" in at["product"] and "tl.max" in at["largest"] and "tl.store" in at["out"]


def scaled_rows(dtype):
    """The kernels' softmax as a solution, its definition, and a workload of six rows."""
    array = {"shape": ["M", "N"], "dtype": dtype}
    definition = Definition.model_validate({
        "name": "scaled", "op_type": "scale", "reference": "",
        "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 50}},
        "inputs": {"x": array}, "outputs": {"y": array},
    })  # fmt: skip
    workload = Workload.model_validate({"axes": {"M": 6}, "inputs": {"x": {"type": "random"}},
                                        "uuid": "1"})  # fmt: skip
    solution = one_file("s", "scaled", "a", "kernels.py::softmax", KERNELS.read_text())
    return solution, definition, workload


def test_a_solution_is_lifted_for_the_shapes_of_its_workload():
    """Evidence: FlashInfer-Bench's contract: axes of the definition, extents of the workload, one array
    beside the sources' entry point."""
    found = lift_solution(*scaled_rows("bfloat16")).algorithm
    (array,) = found.inputs
    assert (array.shape, array.dtype) == ((6, 50), "bfloat16")
    x = np.random.default_rng(0).standard_normal((6, 50))
    np.testing.assert_allclose(evaluate(found, {"x": x})[0].sum(-1), 1, rtol=1e-2)


def test_sources_import_each_other():
    """Evidence: a solution of several files, as FlashInfer-Bench runs it."""
    text = f"{HEAD}from near import k\n{HOST}"
    found = _lifted(text, {"near.py": f"{HEAD}{KERNEL}"})
    assert found.lines["out"].file == "near.py"


LOOP = "while True:\n    pass\n"
HOSTILE = {
    "a loop at import": (f"{HEAD}{LOOP}", "k.py:3: tracing it took longer"),
    "a loop of the host": (
        f"{HEAD}def run(x):\n    while True:\n        pass\n", "tracing it took longer",
    ),
    "a loop that catches": (
        f"{HEAD}while True:\n    try:\n        while True: pass\n    except BaseException: pass\n",
        "tracing it took longer",
    ),
    "a loop of the kernel": (
        f"{HEAD}@triton.jit\ndef k(x):\n    while True:\n        z = 1\ndef run(x):\n    k[(1,)](x)\n",
        "k.py:5: a `while` loop does not end",
    ),
    "a long power": (f"{HEAD}x = 10**10**10\n", "longer than"),
    "a process that ends": (f"{HEAD}os._exit(0)\n", "ended by exit code 0"),
    "an exit": (f"{HEAD}sys.exit(3)\n", "k.py:3: SystemExit: 3"),
    "a file elsewhere": (f"{HEAD}open('/tmp/accelopt_x', 'w')\n", "k.py:3: PermissionError"),
    "a secret": (f"{HEAD}open('/etc/passwd').read()\n", "k.py:3: PermissionError"),
    "a connection": (
        f"{HEAD}import socket\nsocket.create_connection(('127.0.0.1', 9))\n", "k.py:4: ",
    ),
    "forks": (f"{HEAD}while True:\n    os.fork()\n", "k.py:4: "),
    "the caller's end": (f"{HEAD}os.kill(os.getppid(), 9)\n", "k.py:3: "),
    "a flood": (f"{HEAD}while True:\n    print('x' * 100000)\n", "flooded its output"),
    "a full disk": (
        f"{HEAD}f = open('x', 'wb')\nwhile True:\n    f.write(bytes(1 << 20))\n",
        "File too large|filled ",
    ),
    "endless recursion": (f"{HEAD}def f():\n    f()\nf()\n", "k.py:4: "),
    "lines of ours": (f"{HEAD}raise BaseException('a\\naccelopt: fine')\n", r"a \| accelopt: fine"),
    "no Python": ("def (", "k.py:1: SyntaxError"),
    "no host function": (f"{HEAD}{KERNEL}", "there is no function run"),
    "a path outside": (f"{HEAD}{KERNEL}{HOST}", "leaves its folder"),
    "an answer of its own": (
        f"{HEAD}import json\nsaid = json.dumps({{'algorithm': '[1]'}}).encode()\n"
        "for n in range(3, 64):\n    try:\n        os.write(n, said)\n    except OSError:\n        pass\n"
        "os._exit(0)\n",
        "left a damaged answer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_stranger_is_refused_in_one_sentence(name):
    """Evidence: what the file does, and where. The process that asks lives on."""
    text, reason = HOSTILE[name]
    beside = {"../evil.py": ""} if name == "a path outside" else {}
    with pytest.raises(NotTraced) as refusal:
        _lifted(text, beside)
    assert re.search(reason, str(refusal.value)) and "\n" not in str(refusal.value)
    assert not Path("/tmp/accelopt_x").exists()


def test_only_algorithms_are_taken_for_one():
    """Evidence: the documented meaning of the records: every read is of an array that is there."""
    found = lift_launches(KERNELS, "softmax", [Like((6, 50))]).algorithm
    assert well_formed(from_json(found.to_json())) == found
    plain = json.loads(found.to_json())
    swapped = {**plain, "definitions": plain["definitions"][::-1]}
    damaged = [
        swapped,
        {**plain, "inputs": []},
        {**plain, "outputs": [{**plain["outputs"][0], "name": "other"}]},
        {**plain, "outputs": [{**plain["outputs"][0], "shape": [6, 49]}]},
        {**plain, "name": 3},
        {**plain, "inputs": [{**plain["inputs"][0], "shape": [6, -50]}]},
        {**plain, "inputs": [{**plain["inputs"][0], "shape": "6"}]},
        {**plain, "definitions": [{**plain["definitions"][0], "combiner": "first"}]},
        {**plain, "definitions": [{**plain["definitions"][0], "axes": []}]},
        {**plain, "definitions": plain["definitions"] * 2},
    ]
    for text in map(json.dumps, damaged):
        with pytest.raises(ValueError, match=r".+"):
            well_formed(from_json(text))
    wider = dataclasses.replace(found.inputs[0], name="y")
    assert well_formed(dataclasses.replace(found, inputs=(*found.inputs, wider)))
