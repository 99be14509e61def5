"""Whole evaluations in real child processes, through the Triton interpreter on tiny shapes."""

import sys
import time

import pytest

from accelopt.evaluation import NO_VERDICTS, Status
from accelopt.kernels.gpu.bench.files.input_draws import fresh
from accelopt.kernels.gpu.bench.judging.evaluation import evaluate
from accelopt.kernels.gpu.bench.judging.evaluation_task import Task, TimingPlan

TINY = TimingPlan(sets=2, least_rounds=2, most_rounds=2, package=False)


def task_of(starter, name, environment, source=None, **fields):
    solution = starter.solutions[f"plain_{name}"]
    if source is not None:
        solution = solution.with_source(source, "changed")
    return Task(
        root=starter.root,
        definition=starter.definitions[name],
        workload=starter.workloads[name][-1],
        solution=solution,
        device="cpu",
        plan=TINY,
        environment=environment,
        **fields,
    )


def in_half(text):
    """Attention in float16: the interpreter of Triton 3.6 multiplies bfloat16 as integers."""
    return text.replace("bfloat16", "float16")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["rmsnorm_h4096", "fused_add_rmsnorm_h4096", "silu_and_mul_h14336", "softmax_n8192",
     "rope_h32_kv8_d128"],
)  # fmt: skip
def test_plain_solutions_are_right(starter, interpreter, name):
    verdict = evaluate(task_of(starter, name, interpreter))
    assert verdict.evaluation.status is Status.CORRECT, verdict.evaluation
    assert verdict.latency.samples > 0
    assert verdict.evaluation.profile.interval_ms is not None
    assert len(verdict.evaluation.checks) >= 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gqa_paged_decode_h32_kv8_d128_ps16", "gqa_ragged_prefill_causal_h32_kv8_d128"]
)
def test_attention_is_right_in_half_precision(starter, interpreter, name):
    task = task_of(starter, name, interpreter)
    text = in_half(task.definition.model_dump_json(exclude_unset=True))
    definition = type(task.definition).model_validate_json(text)
    verdict = evaluate(task._replace(definition=definition))
    assert verdict.evaluation.status is Status.CORRECT, verdict.evaluation


@pytest.mark.slow
def test_destination_passing_solutions_are_called_so(starter, interpreter):
    plain = starter.solutions["plain_softmax_n8192"].main_source
    source = plain.replace("def run(logits):", "def run(logits, output):").replace(
        "    output = torch.empty_like(logits)\n", ""
    ).replace("    return output\n", "")  # fmt: skip
    verdict = evaluate(task_of(starter, "softmax_n8192", interpreter, source))
    assert verdict.evaluation.status is Status.CORRECT, verdict.evaluation


def test_wrong_numbers_come_with_figures(starter, interpreter):
    source = starter.solutions["plain_softmax_n8192"].main_source.replace(
        "/ total", "/ (2 * total)"
    )
    verdict = evaluate(task_of(starter, "softmax_n8192", interpreter, source))
    assert verdict.evaluation.status is Status.WRONG_NUMBERS
    [figures] = verdict.figures
    assert figures.relative_l2 == pytest.approx(0.5, rel=1e-3)
    assert "wanted" in verdict.evaluation.message
    assert "probabilities" in verdict.evaluation.message


def test_a_crash_costs_seconds_and_not_the_time_limit(starter, interpreter):
    source = "import torch\n\n\ndef run(x, w):\n    torch.empty(4).as_strided((1 << 40,), (1,)).zero_()\n"
    begin = time.monotonic()
    verdict = evaluate(task_of(starter, "rmsnorm_h4096", interpreter, source, timeout_seconds=300))
    assert verdict.evaluation.status in (Status.CRASH, Status.RUN_ERROR)
    assert time.monotonic() - begin < 120


def test_a_device_without_memory_is_no_verdict(starter, interpreter):
    """PyTorch's words for cudaErrorMemoryAllocation, raised here by the solution: it is judged again with
    the device to itself, and where that does not help, the row says so."""
    source = "import torch\n\n\ndef run(x, w):\n    raise RuntimeError('CUDA out of memory')\n"
    found = evaluate(task_of(starter, "rmsnorm_h4096", interpreter, source)).evaluation
    assert found.status in NO_VERDICTS and found.message.startswith("not judged: out of memory")


def test_import_errors_are_compile_errors(starter, interpreter):
    verdict = evaluate(task_of(starter, "rmsnorm_h4096", interpreter, "import no_such_module\n"))
    assert verdict.evaluation.status is Status.COMPILE_ERROR
    assert "no_such_module" in verdict.evaluation.message


def test_a_failing_reference_is_the_baselines_fault(starter, interpreter):
    task = task_of(starter, "rmsnorm_h4096", interpreter)
    broken = task.definition.model_copy(
        update={"reference": "def run(x, w):\n    raise ValueError('no reference')\n"}
    )
    verdict = evaluate(task._replace(definition=broken))
    assert verdict.evaluation.status is Status.BASELINE_FAILED
    assert "no reference" in verdict.evaluation.message


ENDS_ITS_PROCESS = """
import os
import signal


def run(x, w):
    print("about to fall", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_reference_whose_process_ends_says_how_and_its_last_words(starter, interpreter):
    task = task_of(starter, "rmsnorm_h4096", interpreter)
    broken = task.definition.model_copy(update={"reference": ENDS_ITS_PROCESS})
    found = evaluate(task._replace(definition=broken)).evaluation
    assert found.status is Status.BASELINE_FAILED
    for words in ("`expect`", "SIGSEGV", "about to fall"):
        assert words in found.message


TELLS_ITS_DEPTH = """
DEPTHS = []


def left(count):
    try:
        return left(count + 1)
    except RecursionError:
        return count


def run(x, weight):
    DEPTHS.append(left(0))
    return x * 1
"""


def test_calls_of_all_kinds_go_equally_deep(torch, starter, tmp_path):
    """How many calls are left tells who calls: it is the same from a trial, a round and a batch."""
    from accelopt.kernels.gpu.bench.process import candidate, messages

    task = task_of(starter, "rmsnorm_h4096", (), TELLS_ITS_DEPTH)
    python = task.solution.spec.model_copy(update={"language": "python"})
    names = {"definition": task.definition, "workload": task.workload,
             "solution": task.solution.model_copy(update={"spec": python})}  # fmt: skip
    one = candidate.Candidate({
        **{name: row.model_dump(mode="json") for name, row in names.items()},
        "root": str(task.root), "folder": str(tmp_path), "device": "cpu",
        "destination_passing_style": False,
    })  # fmt: skip
    limit = sys.getrecursionlimit()
    draws = tuple(fresh() for _ in range(2))
    one.load(messages.Load())
    one.check(messages.CheckCall(draw=draws[0], name="one", key=1))
    one.prepare(messages.Prepare(sets=2))
    one.round(messages.Round(draws=draws, keys=(1, 2)))
    one.fill(messages.Fill(draws=draws))
    one.batch(messages.Batch(first=0, calls=2, wait_ms=0.0))
    sys.setrecursionlimit(limit)
    assert len(set(sys.modules.pop("candidate_source").DEPTHS)) == 1


@pytest.mark.slow
def test_a_solution_may_be_as_inexact_as_its_start(starter, interpreter):
    plain = starter.solutions["plain_softmax_n8192"]
    half = plain.main_source.replace("(x - highest) /", "(x - highest).to(tl.float16) /")
    task = task_of(starter, "softmax_n8192", interpreter, half)
    start = plain.with_source(f"{half}\n# as it began\n", "start")
    like = evaluate(task._replace(start=start)).evaluation
    assert like.status is Status.CORRECT, like
    assert like.exactness[0].ulps > 1000
    less = evaluate(task._replace(start=plain)).evaluation
    assert less.status is Status.WRONG_NUMBERS
    assert "times less exact than its baseline" in less.message
