"""The text of `accelopt profile`: what a kernel costs and why, as its author would want to read it."""

from __future__ import annotations

import textwrap
from pathlib import Path

from accelopt.kernels.nki.advice import NONE, Rewrite
from accelopt.kernels.nki.briefing import MEBIBYTE, briefing
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.kernels.nki.source_lines import Sources
from accelopt.sim.timing import UNRESOLVED, KernelProfile, LatencyRange, LineCost
from accelopt.sim.timing.stream.operation import Decision

LINES_SHOWN = 12
WIDTH = 100  # columns
COMMAND = "  $ "
CARRY_OUT = "To carry one out, or to see where to edit:"
SILENT_BELOW = 0.005
"""Scenarios that change the latency by less are not worth a line."""


def profile_text(
    found: KernelProfile,
    interval: LatencyRange | None = None,
    rewrite: Rewrite | None = None,
    apply: str = "",
    reference: Path | None = None,
) -> str:
    """Headline and advice; then the account: what limits the kernel and how near it is to the bound of its
    problem, what-ifs, single aspects, engines, costly lines, the price of instructions, memory, what the
    compiler did, and every counter. What a planner reads is in it. `rewrite` is the kernel by another nest, `apply` the command that carries
    advice out, but for its number; the bound is by the `reference` where the kernel does not lift."""
    bound = problem_bound(found.run.program, found.run.spec, reference)
    told = briefing(found, bound, rewrite)
    parts = [
        _headline(found, interval),
        told["advice"]
        + (f"\n{CARRY_OUT}\n{COMMAND}{apply} N" if apply and told["advice"] != NONE else ""),
        told["limits"],
        _aspects(found),
        told["engines"],
        _lines(found),
        f"what its instructions cost\n{told['prices']}" if told["prices"] else "",
        told["memory"],
        _decisions(found.decisions),
        _summary(found),
    ]
    return folded("\n\n".join(part for part in parts if part)) + "\n"


def _headline(found: KernelProfile, interval: LatencyRange | None) -> str:
    text = f"{found.latency_ms:.4g} ms, {found.simulated_on} ({found.calibration}).\n"
    if not found.run.spec.was_measured:
        text += (
            f"Nothing was measured on {found.target}: neither an interval nor a least difference."
        )
    else:
        text += f"Differences below {UNRESOLVED:.0%} are unresolved."
    if interval is None:
        return text
    if found.run.spec.was_measured:
        text += (
            f"\nOf ten such predictions, eight would measure between "
            f"{interval.low_ms:.4g} and {interval.high_ms:.4g} ms."
        )
    telling = [
        (scenario, scenario.latency_ms / found.latency_ms - 1)
        for scenario in interval.scenarios
        if abs(scenario.latency_ms / found.latency_ms - 1) >= SILENT_BELOW
    ]
    if not telling:
        return text + "\nNo decision of the compiler that cannot be inferred would change it."
    text += "\nHad the compiler decided otherwise:"
    for scenario, change in telling:
        text += f"\n  {scenario.question:55s} {scenario.latency_ms:9.4g} ms {change:+7.1%}"
    return text


def _aspects(found: KernelProfile) -> str:
    rows = ["single aspects of this kernel         ms   share  meaning"]
    for bound in found.bounds:
        rows.append(
            f"  {bound.aspect:9s} {bound.name:22s} {round(bound.ms, 9):8.4g} {bound.ms / found.latency_ms:6.1%}"
            f"  {bound.meaning}"
        )
    return "\n".join(rows)


def _lines(found: KernelProfile) -> str:
    if not found.lines:
        return ""
    sources = Sources()
    rows = [
        "source lines by their part of the critical path",
        f"  {'line':>6s} {'critical':>9s} {'busiest engine':>22s} {'times':>8s} {'MiB':>8s}",
    ]
    for line in found.lines[:LINES_SHOWN]:
        rows.append(_line(line, found.latency_ms, sources))
    return "\n".join(rows)


def _line(line: LineCost, latency_ms: float, sources: Sources) -> str:
    engine = max(line.busy_ms, key=line.busy_ms.__getitem__)
    busy = f"{engine} {line.busy_ms[engine]:.4g} ms"
    size = f"{line.bytes / MEBIBYTE:.4g}" if line.bytes else ""
    return (
        f"  {line.source.line:6d} {line.critical_ms / latency_ms:9.1%} {busy:>22s} {line.count:8,d} "
        f"{size:>8s}  {sources.named(line.operations, line.source)}\n"
        f"         {sources.text(line.source)}"
    )


def _decisions(decisions: tuple[Decision, ...]) -> str:
    if not decisions:
        return "The compiler emulation changed nothing."
    rows, sources = ["what the compiler emulation did"], Sources()
    for decision in decisions:
        times = f", {decision.count:,} times" if decision.count > 1 else ""
        size = f", {decision.bytes:,} B" if decision.bytes else ""
        action = sources.named(decision.action, decision.source)
        rows.append(
            f"  {decision.pass_name:20s} line {decision.source.line}: {action}{times}{size}"
        )
    return "\n".join(rows)


def _summary(found: KernelProfile) -> str:
    rows = ["profiler summary"]
    rows += [f"  {name:42s} {value:.8g}" for name, value in found.summary.items()]
    true = found.true_counts
    rows.append("physical counts")
    rows.append(f"  {'matmul flops, counted once':42s} {true.flops:,}")
    rows.append(f"  {'DMA descriptors':42s} {true.dma_descriptors:,}")
    return "\n".join(rows)


def folded(text: str) -> str:
    """The lines of `text` in at most 100 columns: longer ones are continued below, farther in; a command
    stays whole."""
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith(COMMAND):
            rows.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip(" -"))]
        rows += textwrap.wrap(
            line, WIDTH, subsequent_indent=" " * (len(indent) + 4), break_long_words=False,
            break_on_hyphens=False, drop_whitespace=True,
        ) or [""]  # fmt: skip
    return "\n".join(rows)
