"""How far kernels that others wrote get: loaded, traced, right, lifted, written by schedule, made faster.

    python benchmarks/reach.py FOLDER... [--evaluations 8] [--no-search] [--jobs 1] [--seconds 900] [--json FILE]

A kernel is a `kernel.py` beside a `reference.py`, or a file of a public checkout for which a module of
`benchmarks/reach/` says what it must compute: `FILE` (the end of its path), `FUNCTIONS`, and what every
reference has. Launches of Triton kernels that `triton_cases.py` knows are lifted, as by `triton_reach.py`. Other files with `nki.jit` in them are loaded only, function by function. A file is copied
with its folder, and `kernel = FUNCTION` is written below it. Prints a line a kernel, with the one reason why
it got no further, and totals; gains are predicted by the simulated core.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STAGES = ("loads", "traces", "right", "lifts", "schedule")
MOST_COPIED = 1 << 20
"""Bytes of a Python file beside a kernel that is copied with it."""


@dataclass(frozen=True)
class Kernel:
    """A kernel to try: `reference` is empty where nobody says what it computes."""

    name: str
    file: str
    function: str = ""
    reference: str = ""


@dataclass
class Reach:
    """What became of a kernel: None where a stage was not asked for or not come to. Times in ms, predicted."""

    kernel: str
    loads: bool | None = None
    traces: bool | None = None
    right: bool | None = None
    lifts: bool | None = None
    schedule: bool | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    seconds: float = 0.0
    reason: str = ""

    @property
    def gain(self) -> float | None:
        """How many times as fast the winner is."""
        return self.before_ms / self.after_ms if self.before_ms and self.after_ms else None


def kernels(folder: Path) -> Iterator[Kernel]:
    """The kernels below a folder."""
    cases = [(case, _constants(case)) for case in sorted((HERE / "reach").glob("*.py"))]
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8", errors="replace")
        beside = file.with_name("reference.py")
        name = str(file.relative_to(folder))
        if file.name == "kernel.py" and beside.is_file():
            yield Kernel(str(file.parent.relative_to(folder)), str(file), "", str(beside))
        elif known := [(c, f) for c, f in cases if str(file).endswith(f"/{f['FILE']}")]:
            for case, found in known:
                for function in found["FUNCTIONS"]:
                    yield Kernel(f"{file.stem}:{function}", str(file), function, str(case))
        elif "nki.jit" in text and "test" not in name.split("/")[0]:
            for function in _decorated(text):
                yield Kernel(f"{name}:{function}", str(file), function)


def _constants(case: Path) -> dict[str, Any]:
    """`FILE` and `FUNCTIONS` of a module of ours."""
    found = {}
    for node in ast.parse(case.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            with contextlib.suppress(ValueError):
                found[node.targets[0].id] = ast.literal_eval(node.value)
    return found


def _decorated(text: str) -> list[str]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return [""]
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("nki.jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def placed(kernel: Kernel, folder: Path) -> Path:
    """A copy of the kernel's file and of the Python files of its folder, with the kernel named."""
    source = Path(kernel.file)
    for beside in source.parent.glob("*.py"):
        if beside.stat().st_size < MOST_COPIED:
            shutil.copy(beside, folder)
    file = folder / source.name
    if kernel.function:
        named = f"\n\nkernel = {kernel.function}\n"
        file.write_text(source.read_text(encoding="utf-8") + named, encoding="utf-8")
    if kernel.reference:
        shutil.copy(kernel.reference, folder / "reference.py")
    return file


def reach(kernel: Kernel, folder: Path, evaluations: int, search: bool) -> Reach:
    """Takes one kernel as far as it goes."""
    import accelopt
    from accelopt.errors import AcceloptError
    from accelopt.kernel_wrapper import NKIKernel
    from accelopt.kernels.nki.arguments import argument_of
    from accelopt.kernels.nki.devices.protocol import KernelFailure
    from accelopt.kernels.nki.devices.simulated import SimulatedDevice
    from accelopt.kernels.nki.lift.failure import NotLifted
    from accelopt.kernels.nki.lift.lifting import lift
    from accelopt.kernels.nki.referee.reference import Reference
    from accelopt.sim.dialects.dialect import DEFAULT_TARGETS, dialect_of_source

    found = Reach(kernel.name)
    file = placed(kernel, folder)
    target = DEFAULT_TARGETS[dialect_of_source(file.read_text(encoding="utf-8"))]
    device = SimulatedDevice(target)
    try:
        survey = device.survey(str(file), None)
        found.loads = not survey.failure
        found.reason = survey.failure
    except AcceloptError:  # the shapes of its arguments are not known: it was loaded
        found.loads = True
    except KernelFailure as failure:
        found.loads, found.reason = False, failure.message
    if not found.loads or not kernel.reference:
        return found
    found.traces = found.right = found.lifts = False
    reference = Reference(folder / "reference.py")
    arguments = [argument_of(value) for value in reference.kernel_inputs(reference.inputs(0))]
    try:
        program = device.compile(str(file), arguments).program
    except KernelFailure as failure:
        found.reason = failure.message
        return found
    found.traces = True
    verdict = NKIKernel(file, folder / "reference.py").profile()
    found.right = verdict.correct
    found.before_ms = verdict.metadata.get("latency")
    if not verdict.correct:
        found.reason = next(iter(verdict.metadata.values()), "no verdict")
        return found
    try:
        lift(program)
        found.lifts = True
    except NotLifted as refusal:
        found.reason = f"not lifted: {refusal}"
    if search:
        outcome = accelopt.optimize(
            file, folder / "reference.py", out=folder / "run", evaluations=evaluations
        )
        found.before_ms = outcome.start.latency
        found.after_ms = outcome.best.latency if outcome.best else None
        found.schedule = any("Rewrite" in change for change in outcome.changes)
        found.reason = found.reason or outcome.failure or outcome.before.unscheduled
    return found


def tried(kernel: Kernel, options: argparse.Namespace) -> Reach:
    """`reach` in a process of its own, within a limit of time."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", json.dumps(asdict(kernel)), folder]
        command += ["--evaluations", str(options.evaluations)]
        command += ["--no-search"] * options.no_search
        found = Reach(kernel.name)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
            found = Reach(**json.loads(done.stdout.splitlines()[-1]))
        except subprocess.TimeoutExpired:
            found.reason = f"took longer than {options.seconds:g} s"
        except (IndexError, ValueError, TypeError):
            last = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            found.reason = f"the benchmark's process failed: {last[-1]}"
    found.reason = found.reason.replace(f"{folder}/", "").replace(
        kernel.file, Path(kernel.file).name
    )
    found.seconds = time.monotonic() - begun
    return found


def row(found: Reach, width: int) -> str:
    """One line of the table."""
    marks = {True: "yes", False: "no", None: "-"}
    stages = "".join(f"{marks[getattr(found, stage)]:>9}" for stage in STAGES)
    gain = f"{found.gain:.2f}" if found.gain else "-"
    reason = " ".join(found.reason.split())
    return f"{found.kernel:{width}}{stages}{gain:>7}{found.seconds:>8.0f}  {reason[:160]}"


def totals(rows: list[Reach]) -> str:
    """How many kernels came through each stage, and the geometric mean of the gains."""
    counts = [
        f"{stage} {sum(bool(getattr(one, stage)) for one in rows)} of "
        f"{sum(getattr(one, stage) is not None for one in rows)}"
        for stage in STAGES
    ]
    gains = [math.log(one.gain) for one in rows if one.gain]
    mean = f"; gain {math.exp(sum(gains) / len(gains)):.2f} over {len(gains)}" if gains else ""
    return ", ".join(counts) + mean


def main() -> int:
    """Find, try, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--evaluations", type=int, default=8, help="kernels that a search judges")
    parser.add_argument("--no-search", action="store_true", help="end with the lift")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=900.0, help="for one kernel")
    parser.add_argument(
        "--interpreter", default="", help="a Python with torch and triton, to compare with"
    )
    parser.add_argument("--json", type=Path, help="where the rows are kept")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kernel = Kernel(**json.loads(options.child))
        search = not options.no_search
        found = reach(kernel, options.folders[0], options.evaluations, search)
        print(json.dumps(asdict(found)))
        return 0
    listed = [kernel for folder in options.folders for kernel in kernels(folder.resolve())]
    width = max((len(kernel.name) for kernel in listed), default=6) + 1
    heads = "".join(f"{stage:>9}" for stage in STAGES)
    print(f"{'kernel':{width}}{heads}{'gain':>7}{'s':>8}  why no further")
    rows: list[Reach] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for found in pool.map(lambda kernel: tried(kernel, options), listed):
            rows.append(found)
            print(row(found, width), flush=True)
    print(totals(rows))
    sys.path.insert(0, str(HERE))
    import triton_reach

    triton_reach.report(
        [folder.resolve() for folder in options.folders], interpreter=options.interpreter
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in rows], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
