"""Compare solutions of FlashInfer-Trace folders: latency and speedup against one named baseline.

    python experiments/flb_h200/trace_comparison.py FOLDER... [--baseline NAME] [--timer NAME]
        [--hardware NAME] [--csv FILE] [--plot FILE]

A speedup is only formed between two latencies of one workload, on one hardware, by one timer; the
baseline, the hardware and the timer stand beside every table.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import html
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.errors import ConfigError
from accelopt.kernels.gpu.bench.files.tracefiles import Trace, TraceFolder, workload_stem
from accelopt.kernels.gpu.bench.judging.verdict import LAUNCH_FREE_KEY, REFERENCE_LAUNCH_FREE_KEY
from accelopt.store import write_atomically

REFERENCE = "reference"
PACKAGE_TIMER = "package"
LAUNCH_FREE_TIMER = "launch-free"
TIMERS = (PACKAGE_TIMER, LAUNCH_FREE_TIMER)
COLUMNS = (
    "folder", "workload", "axes", "solution", "status", "latency_ms", "baseline", "baseline_ms",
    "speedup", "timer", "hardware",
)  # fmt: skip


class SolutionLatency(NamedTuple):
    """One solution on one workload. Latencies in milliseconds; None where there is none."""

    folder: str
    workload: str
    axes: str
    solution: str
    status: str
    latency_ms: float | None
    baseline_ms: float | None
    hardware: str

    @property
    def speedup(self) -> float | None:
        """Baseline latency over latency."""
        if not self.latency_ms or not self.baseline_ms:
            return None
        return self.baseline_ms / self.latency_ms


class Mean(NamedTuple):
    """The geometric mean of a folder's best speedups, one a workload."""

    folder: str
    hardware: str
    value: float
    workloads: int


class Comparison(NamedTuple):
    """All lines, with what they were compared with and by which timer."""

    lines: tuple[SolutionLatency, ...]
    baseline: str
    timer: str
    means: tuple[Mean, ...]
    problems: tuple[str, ...] = ()


def compare(
    folders: Sequence[Path],
    *,
    baseline: str = REFERENCE,
    timer: str = PACKAGE_TIMER,
    hardware: str | None = None,
) -> Comparison:
    """Compare all traces below `folders`.

    `baseline` is `reference` (the PyTorch reference that each trace carries), or a pattern for the
    name of a solution, such as `plain_*`; of several that match on a workload the fastest counts.
    Raises ConfigError for a folder without traces and for an unknown timer.
    """
    if timer not in TIMERS:
        raise ConfigError(f"there is no timer {timer!r}; choose from {', '.join(TIMERS)}")
    found: list[tuple[str, Trace]] = []
    problems: list[str] = []
    for path in folders:
        folder = TraceFolder(path)
        traces = [trace for group in folder.traces.values() for trace in group]
        if not traces:
            raise ConfigError(f"{path} has no traces below its folder `traces`")
        found += [(str(path), trace) for trace in traces if trace.evaluation is not None]
        problems += folder.problems
    if hardware is not None:
        found = [(path, trace) for path, trace in found if _hardware(trace) == hardware]
    baselines = {} if baseline == REFERENCE else _baselines(found, baseline, timer)
    lines = tuple(
        sorted(
            (_line(path, trace, baseline, baselines, timer) for path, trace in found),
            key=lambda line: (line.workload, line.hardware, line.latency_ms or math.inf),
        )
    )
    return Comparison(lines, baseline, timer, tuple(_means(lines)), tuple(problems))


def latency_of(trace: Trace, timer: str) -> float | None:
    """The latency by one timer, milliseconds. Launch-free times stand in our own traces only."""
    evaluation = trace.evaluation
    if evaluation is None or not trace.passed or evaluation.performance is None:
        return None
    extra = (evaluation.correctness.extra if evaluation.correctness else None) or {}
    launch_free = extra.get(LAUNCH_FREE_KEY)
    if timer == LAUNCH_FREE_TIMER:
        return float(launch_free) if launch_free is not None else None
    return evaluation.performance.latency_ms or None


def _reference_of(trace: Trace, timer: str) -> float | None:
    evaluation = trace.evaluation
    if evaluation is None or evaluation.performance is None:
        return None
    if timer == LAUNCH_FREE_TIMER:
        extra = (evaluation.correctness.extra if evaluation.correctness else None) or {}
        value = extra.get(REFERENCE_LAUNCH_FREE_KEY)
        return float(value) if value is not None else None
    return evaluation.performance.reference_latency_ms or None


def _hardware(trace: Trace) -> str:
    return trace.evaluation.environment.hardware if trace.evaluation else ""


def _place(trace: Trace) -> tuple[str, str, str]:
    return trace.definition, trace.workload.uuid, _hardware(trace)


def _baselines(
    found: Iterable[tuple[str, Trace]], pattern: str, timer: str
) -> dict[tuple[str, str, str], float]:
    best: dict[tuple[str, str, str], float] = {}
    for _, trace in found:
        latency = latency_of(trace, timer)
        if latency is not None and fnmatch.fnmatchcase(trace.solution or "", pattern):
            place = _place(trace)
            best[place] = min(latency, best.get(place, math.inf))
    return best


def _line(
    path: str,
    trace: Trace,
    baseline: str,
    baselines: dict[tuple[str, str, str], float],
    timer: str,
) -> SolutionLatency:
    assert trace.evaluation is not None
    against = _reference_of(trace, timer) if baseline == REFERENCE else baselines.get(_place(trace))
    return SolutionLatency(
        folder=path,
        workload=workload_stem(trace),
        axes=" ".join(f"{name}={size}" for name, size in sorted(trace.workload.axes.items())),
        solution=trace.solution or "",
        status=trace.evaluation.status,
        latency_ms=latency_of(trace, timer),
        baseline_ms=against,
        hardware=_hardware(trace),
    )


def _means(lines: Iterable[SolutionLatency]) -> list[Mean]:
    best: dict[tuple[str, str], dict[str, float]] = {}
    for line in lines:
        if line.speedup is not None:
            group = best.setdefault((line.folder, line.hardware), {})
            group[line.workload] = max(line.speedup, group.get(line.workload, 0.0))
    return [
        Mean(folder, hardware, math.exp(sum(map(math.log, v.values())) / len(v)), len(v))
        for (folder, hardware), v in sorted(best.items())
    ]


def as_text(comparison: Comparison) -> str:
    """A table for people: a block a workload, fastest first, and the means at the end."""
    title = f"speedup over {comparison.baseline}, latencies by the {comparison.timer} timer"
    blocks = [title]
    width = max((len(line.solution) for line in comparison.lines), default=8)
    place: tuple[str, str] | None = None
    for line in comparison.lines:
        if (line.workload, line.hardware) != place:
            place = line.workload, line.hardware
            against = "none" if line.baseline_ms is None else f"{line.baseline_ms:.4f} ms"
            blocks.append(
                f"\n{line.workload}  {line.axes}  on {line.hardware}\n"
                f"  {comparison.baseline}: {against}"
            )
        latency = "" if line.latency_ms is None else f"{line.latency_ms:.4f} ms"
        speedup = "" if line.speedup is None else f"{line.speedup:.3f}x"
        blocks.append(f"  {line.solution:<{width}}  {latency:>13}  {speedup:>9}  {line.status}")
    blocks.append("")
    for mean in comparison.means:
        blocks.append(
            f"geometric mean of the best over {comparison.baseline}: {mean.value:.3f}x over "
            f"{mean.workloads} workloads of {mean.folder} on {mean.hardware}"
        )
    blocks += [f"left out: {problem}" for problem in comparison.problems]
    return "\n".join(blocks) + "\n"


def as_csv(comparison: Comparison) -> str:
    """The lines as CSV with the columns `COLUMNS`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in comparison.lines:
        writer.writerow(
            [line.folder, line.workload, line.axes, line.solution, line.status,
             _number(line.latency_ms), comparison.baseline, _number(line.baseline_ms),
             _number(line.speedup), comparison.timer, line.hardware]
        )  # fmt: skip
    return text.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def as_svg(comparison: Comparison) -> str:
    """A bar a solution, grouped by workload; the length is the speedup, the line is 1."""
    lines = [line for line in comparison.lines if line.speedup is not None]
    longest = max((line.speedup or 0.0 for line in lines), default=1.0)
    left, bar, scale = 420, 18, 420 / max(longest, 1.0)
    parts: list[str] = []
    y, workload = 46, ""
    for line in lines:
        if line.workload != workload:
            workload, y = line.workload, y + 14
            parts.append(_words(10, y, f"{workload} ({line.hardware})", bold=True))
            y += bar
        assert line.speedup is not None
        parts.append(_words(24, y, line.solution[:52]))
        length = line.speedup * scale
        parts.append(
            f'<rect x="{left}" y="{y - 11}" width="{length:.1f}" height="13" fill="#4878a8"/>'
        )
        parts.append(_words(left + length + 6, y, f"{line.speedup:.2f}"))
        y += bar
    one = left + scale
    title = f"Speedup over {comparison.baseline} ({comparison.timer} timer)"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="920" height="{y + 20}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<text x="10" y="24" font-size="16">{html.escape(title)}</text>'
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="40" y2="{y}" stroke="#b04040"/>'
    )
    return head + "".join(parts) + "</svg>\n"


def _words(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y}"{weight}>{html.escape(text)}</text>'


def main() -> None:
    """Print the comparison, and write it where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with a folder `traces`")
    parser.add_argument("--baseline", default=REFERENCE, help="or a pattern for solution names")
    parser.add_argument("--timer", default=PACKAGE_TIMER, choices=TIMERS)
    parser.add_argument("--hardware", help="only traces of this device")
    parser.add_argument("--csv", type=Path, help="write the lines here")
    parser.add_argument("--plot", type=Path, help="write a bar chart (SVG) here")
    args = parser.parse_args()
    comparison = compare(
        args.folders, baseline=args.baseline, timer=args.timer, hardware=args.hardware
    )
    print(as_text(comparison), end="")
    if args.csv:
        write_atomically(args.csv, as_csv(comparison))
    if args.plot:
        write_atomically(args.plot, as_svg(comparison))


if __name__ == "__main__":
    main()
