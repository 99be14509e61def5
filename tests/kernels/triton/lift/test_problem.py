"""Solutions and the PyTorch references of their definitions, traced by one tracer."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from accelopt.cli import app
from accelopt.hardware.gpus import H200
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Definition,
    Solution,
    Workload,
    read_json,
    read_workload,
)
from accelopt.kernels.gpu.bench.roofline import bound
from accelopt.kernels.gpu.cases import one_file
from accelopt.kernels.triton.lift.lifting import Like, lift_launches
from accelopt.kernels.triton.lift.problem import lifted_problem, problem_bound

TRACE = Path(__file__).parents[4] / "experiments/flb_optimize/starter_trace"


def _files(name: str) -> tuple[Path, Path, Path]:
    (definition,) = TRACE.glob(f"definitions/*/{name}.json")
    (solution,) = TRACE.glob(f"solutions/*/*/{name}/*.json")
    (workload,) = TRACE.glob(f"workloads/*/{name}.jsonl")
    return definition, solution, workload


def _problem(name: str) -> tuple[Definition, Solution, Workload]:
    definition, solution, workload = _files(name)
    return (
        read_json(Definition, definition), read_json(Solution, solution),
        read_workload(workload).workload,
    )  # fmt: skip


TRACED = ("silu_and_mul_h14336", "gemm_n4096_k4096", "softmax_n8192", "rmsnorm_h4096",
          "fused_add_rmsnorm_h4096", "rope_h32_kv8_d128")  # fmt: skip


@pytest.mark.parametrize("name", TRACED)
def test_solution_and_reference_have_one_normal_form(name):
    """Evidence: both are right on a GPU (experiments/flb_h200). The bound of what is computed is that which
    the kind of problem has by hand."""
    definition, solution, workload = _problem(name)
    found = lifted_problem(solution, definition, workload)
    assert found.same and not found.unequal
    one = problem_bound(found.algorithm, definition, workload, H200)
    other = bound(definition, workload, H200)
    assert one[:4] == pytest.approx(other[:4])


def test_what_is_not_the_same_is_not_called_so():
    """Evidence: another epsilon; a rule on sources that is broken, behind which the tracer may be
    deceived; a reference that cuts a part as long as an index tensor says."""
    definition, solution, workload = _problem("rmsnorm_h4096")
    text = solution.main_source
    other = lifted_problem(
        solution.with_source(text.replace("1e-6", "1e-5"), "o"), definition, workload
    )
    assert not other.same and "different normal forms" in other.unequal
    reaching = solution.with_source(f"import sys\nsys.modules.clear()\n{text}", "r")
    assert not lifted_problem(reaching, definition, workload).same
    paged = lifted_problem(*_reordered("gqa_paged_decode_h32_kv8_d128_ps16"))
    assert "reference.py:14: " in paged.unequal and "only known at run time" in paged.unequal


def _reordered(name):
    definition, solution, workload = _problem(name)
    return solution, definition, workload


SCALED = """import torch, triton
import triton.language as tl

@triton.jit
def scale(x, y, factor, n: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, n)
    tl.store(y + at, tl.load(x + at) * {factor})

def run(x, factor):
    y = torch.empty_like(x)
    scale[(8,)](x, y, factor, 64)
    return y
"""


def test_a_number_of_the_workload_may_not_stand_in_the_kernel():
    """Evidence: a definition's scalar input is an argument; here 0.5, by which the workload was drawn."""
    definition = Definition.model_validate({
        "name": "scaled", "op_type": "scale", "reference": "def run(x, factor):\n    return x * factor\n",
        "axes": {"M": {"type": "const", "value": 8}, "N": {"type": "const", "value": 64}},
        "inputs": {"x": {"shape": ["M", "N"], "dtype": "float32"},
                   "factor": {"shape": None, "dtype": "float32"}},
        "outputs": {"y": {"shape": ["M", "N"], "dtype": "float32"}},
    })  # fmt: skip
    given = {"x": {"type": "random"}, "factor": {"type": "scalar", "value": 0.5}}
    workload = Workload.model_validate({"axes": {}, "inputs": given, "uuid": "1"})
    for factor, same in (("factor", True), ("0.5", False)):
        solution = one_file("s", "scaled", "a", "main.py::run", SCALED.format(factor=factor))
        assert lifted_problem(solution, definition, workload).same is same


def test_a_host_that_asks_a_tensor_is_refused(tmp_path):
    """Evidence: torch gives such a branch a number of the data; the tracer has none."""
    file = tmp_path / "k.py"
    file.write_text("import torch\ndef run(x):\n    return x if (x > 0).all() else -x\n")
    with pytest.raises(Exception, match=r"k\.py:3"):
        lift_launches(file, "run", [Like((4,))])


@pytest.fixture(scope="module")
def call():
    app.command()
    return lambda *words: CliRunner().invoke(app.app, [*map(str, words)])


def test_explain_and_check_of_a_solution(call, tmp_path):
    """Evidence: the lines of the solution's own text."""
    definition, solution, workload = _files("softmax_n8192")
    given = ["--definition", definition, "--workload", workload]
    said = call("explain", solution, *given, "--target", "h100").output
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "total[m] = sum_n exp(logits[m, n] - largest[m])" in lines and "# main.py:18" in lines
    assert "The same in real numbers" in said and "0.1603 ms on NVIDIA H100" in said
    assert max(map(len, said.splitlines())) <= 80
    checked = call("check", solution, *given)
    assert checked.exit_code == 0 and "The same in real numbers" in checked.output
    file = tmp_path / "kernel.py"
    file.write_text(f"import ctypes\n{SCALED}")
    refused = call("check", file, *given)
    assert refused.exit_code == 1 and "kernel.py:1: `" in refused.output
    alone = call("explain", file)
    assert "is a Triton kernel" in str(alone.exception)
