"""What prompts say of gate, calls, prices and engines is what referee, tracer and profile say.

Evidence: the referee's own limit, as `accelopt check` prints it, and the simulated run that both come from.
"""

import asyncio
import re
from pathlib import Path

import pytest
from kernel_heads import neuronxcc_kernel
from prompt_figures import Facts, unproven
from timed_kernels import correct
from warm import core

from accelopt.agents.developer import bottleneck_text
from accelopt.agents.planner import Planner
from accelopt.agents.proposer import KernelView
from accelopt.agents.roles import Prompts
from accelopt.api import own_kernel
from accelopt.evaluation import Case, EvaluationRequest
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki import api_notes as names
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.briefing import briefing
from accelopt.kernels.nki.devices import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.diagnosis import diagnose
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.language import NKI
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.nodes import Node
from accelopt.report.profile_text import profile_text
from accelopt.sandbox.workers import WorkerPool
from accelopt.sim.timing import profile

ROOT = Path(__file__).resolve().parents[3]

REFERENCE = """import ml_dtypes
import numpy as np

def get_inputs():
    return [np.random.normal(size=(128, 256)).astype({dtype})]

def forward(x):
    return (x.astype(np.float32) * 2).astype(x.dtype)
"""
KERNEL = neuronxcc_kernel("""def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.multiply(nl.load(x), 2.0))
    return result
""")


@pytest.mark.parametrize(
    ("dtype", "name"), [("np.float32", "fp32"), ("ml_dtypes.bfloat16", "bfloat16")]
)
def test_tolerance_and_format_are_the_referees(tmp_path, dtype, name):
    """A bfloat16 kernel was told fp32's tolerance, and that its own format is refused (issue 41)."""
    (tmp_path / "twice.py").write_text(KERNEL)
    (tmp_path / "twice_numpy.py").write_text(REFERENCE.format(dtype=dtype))
    case = own_kernel(tmp_path / "twice.py", tmp_path / "twice_numpy.py")

    async def said():
        async with WorkerPool(1) as pool:
            return NKI(pool, LanguageOptions(tmp_path / "kernels", target="trn2")).gate(case)

    gate = asyncio.run(said())
    request = EvaluationRequest(kernel=case.kernel, task=case.task, target="trn2")
    verdict = evaluate(request, SimulatedDevice("trn2"), trial_store(None))
    assert verdict.status.value == "correct", verdict.message
    [limit] = {check.limit for check in verdict.checks if check.name == "relative L2 error"}
    assert float(re.search(r"must stay below ([\de.-]+),", gate)[1]) == pytest.approx(
        limit, rel=1e-3
    )
    assert f"honest {name} rounding" in gate
    assert ("than the inputs or bfloat16 are refused" in gate) == (name == "bfloat16")


def selecting(comparison):
    """A kernel that selects by one comparison of indices."""
    return KERNEL.replace(
        "    nl.store(result, nl.multiply(nl.load(x), 2.0))",
        "    p, f = nl.mgrid[0:128, 0:256]\n    tile = nl.load(x)\n"
        f"    nl.store(result, nisa.affine_select(pred=(p {comparison} f), on_true_tile=tile, on_false_value=0.0))",
    )


@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">=", "==", "!="])
def test_the_note_on_affine_select_says_which_comparisons_it_takes(tmp_path, comparison):
    note = names.describe("nisa.affine_select", "neuronxcc")
    (taken,) = re.findall(r"comparison of indices \((.*?)\)", note)
    (tmp_path / "select.py").write_text(selecting(comparison))
    argument = TensorArgument((128, 256), "float32")
    assert comparison in re.findall(r"[<>=!]+", taken)
    assert core("trn1").compile(str(tmp_path / "select.py"), [argument]).program


HEADINGS = {
    "advice": "What to change first",
    "limits": "What limits it",
    "lines": "Where the time is, by source line",
    "prices": "What its instructions cost",
    "memory": "Memory, and what is read again",
    "compiler": "What the compiler does with it",
}
"""Sections of a planner's prompt with figures of the kernel."""


def problems():
    """Kernels with their references and targets: the fourteen of NKIBench in both dialects, and others of
    everyday forms."""
    references = ROOT / "NKIBench" / "reference"
    for dialect, target, folder in (
        ("neuronxcc", "trn1", "kernels"),
        ("nki", "trn2", "nki/kernels"),
    ):
        for kernel in sorted((ROOT / "NKIBench" / folder).glob("*_0.py")):
            reference = references / kernel.name.replace("_0.py", "_numpy.py")
            yield f"{dialect}-{kernel.stem.partition('_')[0]}", kernel, reference, target
    for root in ("tests/loop/recorded", "benchmarks/conversations"):
        for kernel in sorted((ROOT / root).glob("*/kernel.py")):
            target = "trn2" if kernel.parent.name.endswith("_nki") else "trn1"
            yield kernel.parent.name, kernel, kernel.with_name("reference.py"), target


QUICK = ("neuronxcc-silu", "nki-silu", "nki-rope", "group_norm", "row_softmax")
EVERY = [
    pytest.param(
        *found, dtype, id=f"{name}-{found[0].stem}-{dtype}",
        marks=() if name in QUICK and (dtype == "float32" or "silu" in name) else pytest.mark.slow,
    )
    for name, *found in problems() for dtype in ("float32", "bfloat16")
]  # fmt: skip


def run_of(kernel, reference, target, dtype):
    """The simulated run of a kernel whose float32 arguments come in another format; None where it does
    not take that format."""
    given = [
        argument_of(value)
        for value in Reference(reference).kernel_inputs(Reference(reference).inputs(0))
    ]
    given = [
        one._replace(dtype=dtype) if getattr(one, "dtype", "") == "float32" else one for one in given
    ]  # fmt: skip
    device = core(target)
    try:
        return profile(device.compile(str(kernel), given).program, device.core)
    except KernelFailure:
        assert dtype != "float32"
        return None


def sections(brief):
    """A planner's prompt of a kernel with this brief, by its headings."""
    case = Case(problem="p", values={}, task="t", kernel="k")
    node = Node(case, "def kernel(x): pass", correct(1.0))
    view = KernelView(node, "", brief=brief)
    user = Planner(None, Prompts.read(ROOT / "prompts")).question(view, 0).user
    parts = re.split(r"^# (.*)\n", user, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2]), strict=True))


@pytest.mark.parametrize(("kernel", "reference", "target", "dtype"), EVERY)
def test_every_figure_of_a_prompt_is_that_of_the_run(kernel, reference, target, dtype):
    """The sentences and tables of a planner's prompt are read back by a grammar of their own; a line that it
    does not read, or whose figure the run does not bear out, is an error. `accelopt profile` prints the same."""
    found = run_of(kernel, reference, target, dtype)
    if found is None:
        pytest.skip(f"the kernel does not take {dtype}")
    bound = problem_bound(found.run.program, found.run.spec)
    told, facts = briefing(found, bound), Facts(found, bound)
    shown = sections(told)
    printed = " ".join(profile_text(found).split())
    for part, heading in HEADINGS.items():
        text = shown.get(heading, "")
        assert text == told[part].strip("\n")
        assert unproven(part, text, facts) == [], part
        if part not in ("lines", "compiler"):
            assert " ".join(text.split()) in printed
    assert unproven("engines", told["engines"], facts) == []
    limited = diagnose(found).bottlenecks  # to judges, workers, reflectors and summarizers
    assert limited and unproven("diagnosis", "\n".join(map(bottleneck_text, limited)), facts) == []
    assert shown[HEADINGS["advice"]] and shown[HEADINGS["limits"]]


def test_a_figure_that_is_not_so_is_found():
    """The grammar is strict: each part with one figure changed."""
    kernel, reference, target = next(
        found for name, *found in problems() if name == "neuronxcc-silu"
    )
    found = run_of(kernel, reference, target, "float32")
    bound = problem_bound(found.run.program, found.run.spec)
    told, facts = dict(briefing(found, bound)), Facts(found, bound)
    told["diagnosis"] = "\n".join(map(bottleneck_text, diagnose(found).bottlenecks))
    for part in (*HEADINGS, "engines", "diagnosis"):
        lines = told[part].splitlines()
        number = max(
            n for n, line in enumerate(lines) if re.search(r"\d", line) and "What-if:" not in line
        )
        if part == "advice":
            number = 0
        wrong = re.sub(r"\d+(?:\.\d+)?", lambda m: f"{float(m[0]) * 7 + 3:g}", lines[number])
        assert unproven(part, "\n".join([*lines[:number], wrong, *lines[number + 1 :]]), facts), (
            part
        )
