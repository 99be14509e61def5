"""What prompts say of gate, calls, prices and engines is what referee, tracer and profile say.

Evidence: the referee's own limit, as `accelopt check` prints it, and the simulated run that both come from.
"""

import asyncio
import re
from pathlib import Path

import pytest
from warm import core

from accelopt.api import own_kernel
from accelopt.evaluation import EvaluationRequest
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki import api_notes as names
from accelopt.kernels.nki.briefing import briefing
from accelopt.kernels.nki.devices import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.judging import evaluate, trial_store
from accelopt.kernels.nki.language import NKI
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.report.kernel_simulation import simulate
from accelopt.report.profile_text import profile_text
from accelopt.sandbox.workers import WorkerPool
from accelopt.sim.timing.bill import bill
from accelopt.sim.timing.gaps import engine_activity
from accelopt.sim.timing.what_if import what_ifs

ROOT = Path(__file__).resolve().parents[3]

REFERENCE = """import ml_dtypes
import numpy as np

def get_inputs():
    return [np.random.normal(size=(128, 256)).astype({dtype})]

def forward(x):
    return (x.astype(np.float32) * 2).astype(x.dtype)

def transform_to_nki_inputs(inputs):
    return inputs

def transform_nki_outputs(result, reference):
    return [result]
"""
KERNEL = """import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def kernel(x):
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(result, nl.multiply(nl.load(x), 2.0))
    return result
"""


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
        "import neuronxcc.nki.language as nl",
        "import neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl",
    ).replace(
        "    nl.store(result, nl.multiply(nl.load(x), 2.0))",
        "    p, f = nl.mgrid[0:128, 0:256]\n    tile = nl.load(x)\n"
        f"    nl.store(result, nisa.affine_select(pred=(p {comparison} f), on_true_tile=tile, on_false_value=0.0))",
    )


@pytest.mark.parametrize("comparison", ["<", "<=", ">", ">=", "==", "!="])
def test_the_note_on_affine_select_says_which_comparisons_it_takes(tmp_path, comparison):
    note = names.describe("nisa.affine_select", "neuronxcc")
    taken, refused = re.search(r"indices \((.*); (.*) is refused\)", note).groups()
    (tmp_path / "select.py").write_text(selecting(comparison))
    argument = TensorArgument((128, 256), "float32")
    if comparison in re.findall(r"[<>=!]+", refused):
        with pytest.raises(KernelFailure, match="single affine comparison"):
            core("trn1").compile(str(tmp_path / "select.py"), [argument])
    else:
        assert comparison in re.findall(r"[<>=!]+", taken)
        assert core("trn1").compile(str(tmp_path / "select.py"), [argument]).program


@pytest.mark.parametrize("problem", ["silu", "rmsnorm_matmul"])
def test_prices_and_time_at_work_are_the_profiles(problem):
    """`At work` stood beside prices that add to less, without a word (issue 41)."""
    [kernel] = sorted((ROOT / "NKIBench" / "kernels").glob(f"{problem}_*_0.py"))
    [reference] = sorted((ROOT / "NKIBench" / "reference").glob(f"{problem}_*_numpy.py"))
    found = simulate(kernel, reference, "trn1", 120)
    told = briefing(found, None)
    at_work = dict(
        re.findall(r"(\w+) ([\d.e-]+) ms \(\d+%\)", told["limits"].partition("At work: ")[2])
    )
    for name, share in found.occupancy.items():
        if share:
            assert float(at_work[name]) == pytest.approx(share * found.latency_ms, rel=5e-3)
    busy = {}
    for row in bill(found):
        busy[row.engine] = busy.get(row.engine, 0.0) + row.busy_ms
    for name in ("tensor", "vector", "scalar", "gpsimd"):
        if name in busy:
            assert busy[name] <= float(at_work[name]) * 1.005
    assert "`at work` also counts until results are there" in told["prices"]
    engines = re.findall(r"\n  (\w+) +[\d.e-]+ to [\d.e-]+, works for ([\d.]+)%", told["engines"])
    for name, percent in engines:
        assert float(percent) / 100 == pytest.approx(found.occupancy[name], abs=6e-4)


def everyday(kind):
    """Kernels with their references: the fourteen in either dialect."""
    folder = {"neuronxcc": "kernels", "nki": "nki/kernels"}[kind]
    for kernel in sorted((ROOT / "NKIBench" / folder).glob("*_0.py")):
        yield kernel, ROOT / "NKIBench" / "reference" / kernel.name.replace("_0.py", "_numpy.py")


QUICK = ("silu", "rope_single")
EVERY = [
    pytest.param(*pair, kind, marks=() if pair[0].name.startswith(QUICK) else pytest.mark.slow, id=f"{kind}-{pair[0].stem}")
    for kind in ("neuronxcc", "nki") for pair in everyday(kind)
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "reference", "kind"), EVERY)
def test_every_figure_of_a_brief_is_one_of_the_profile(kernel, reference, kind):
    """Times, shares, traffic and lines of the parts that prompts show, against the simulated run and against
    what `accelopt profile` prints of it."""
    found = simulate(kernel, reference, "trn1" if kind == "neuronxcc" else "trn2", 300)
    now, told = found.latency_ms, briefing(found, problem_bound(found.run.program, found.run.spec))
    printed = profile_text(found)
    for part in ("limits", "engines", "prices", "memory"):
        assert told[part] in printed
    assert told["limits"].startswith(f"{now:.4g} ms, {found.simulated_on}.")
    for one in what_ifs(found):
        if 1 - one.latency_ms / now >= 0.01:
            assert (
                f"{one.latency_ms:8.4g} ms {one.latency_ms / now - 1:+5.0%}  {one.question}"
                in told["limits"]
            )
    critical = {cost.source.line: cost.critical_ms / now for cost in found.lines}
    rows = re.findall(r"\n +(\d+) +(\d+)% ", told["lines"])
    assert rows
    for line, percent in rows:
        assert float(percent) / 100 == pytest.approx(critical[int(line)], abs=6e-3)
    moved = found.summary["hbm_read_bytes"] + found.summary["hbm_write_bytes"]
    [mebibytes] = re.findall(r"Moved: ([\d.,]+) MiB", told["limits"])
    assert float(mebibytes.replace(",", "")) == pytest.approx(moved / 2**20, rel=6e-3)
    for one in engine_activity(found):
        assert (
            f"{one.first_ms:.4g} to {one.last_ms:.4g}, works for {one.busy_ms / now:.1%}"
            in told["engines"]
        )
