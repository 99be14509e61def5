"""The report's figures as Plotly's plain JSON. Colours come from the page, for light and dark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from accelopt.report.story import Portrait, ProblemStory, StoryStep

Figure = dict[str, Any]
MARGIN = {"l": 56, "r": 16, "t": 36, "b": 44}


def progress(curves: Mapping[str, ProblemStory], seconds: bool = False) -> Figure:
    """Best latency so far against evaluations or seconds, one curve a run."""
    figure = go.Figure()
    for name, problem in curves.items():
        across, best = _best_so_far(problem, seconds)
        figure.add_trace(
            go.Scatter(
                x=across, y=best, name=name, mode="lines+markers", line={"shape": "hv"},
                hovertemplate="%{x:.4g}: %{y:.4g} ms<extra></extra>",
            )
        )  # fmt: skip
        if not seconds:
            _failures(figure, problem, max(best, default=0.0))
    axis = "seconds" if seconds else "evaluations"
    return _shaped(figure, f"best so far against {axis}", axis, "ms", legend=len(curves) > 1)


def _failures(figure: go.Figure, problem: ProblemStory, top: float) -> None:
    """What failed, at the height of the baseline."""
    failed = [step for step in problem.steps if step.latency is None]
    if failed:
        figure.add_trace(
            go.Scatter(
                x=[step.number for step in failed], y=[top] * len(failed), mode="markers",
                name="failed", marker={"symbol": "x", "size": 6},
                text=[step.status.replace("_", " ") for step in failed],
                hovertemplate="%{x}: %{text}<extra></extra>", showlegend=False,
            )
        )  # fmt: skip


def _best_so_far(problem: ProblemStory, seconds: bool) -> tuple[list[float], list[float]]:
    best, across, reached = float("inf"), [], []

    def place(step: StoryStep) -> float:
        return step.seconds if seconds else step.number

    for step in sorted(problem.steps, key=place):
        if step.latency is not None and step.latency < best:
            best = step.latency
            across.append(place(step))
            reached.append(best)
    if problem.steps and reached:
        across.append(max(place(step) for step in problem.steps))
        reached.append(best)
    return across, reached


def roofline(portraits: Mapping[str, Portrait]) -> Figure:
    """Where kernels stand under the machine's roof; both axes are logarithmic."""
    figure = go.Figure()
    one = next(iter(portraits.values()))
    ridge = one.peak_flops / one.bandwidth
    shown = [p.intensity for p in portraits.values() if p.intensity > 0]
    low, high = min([ridge, *shown]) / 8, max([ridge, *shown]) * 8
    figure.add_trace(
        go.Scatter(
            x=[low, ridge, high], y=[low * one.bandwidth, one.peak_flops, one.peak_flops],
            mode="lines", name="roof", hoverinfo="skip",
        )
    )  # fmt: skip
    for name, found in portraits.items():
        if found.intensity > 0:
            figure.add_trace(
                go.Scatter(
                    x=[found.intensity], y=[found.flops], mode="markers+text", name=name,
                    text=[name], textposition="bottom center", marker={"size": 11},
                    hovertemplate="%{x:.3g} FLOP/byte, %{y:.3g} FLOP/s<extra>" + name + "</extra>",
                )
            )  # fmt: skip
    _shaped(figure, "roofline", "FLOPs a byte of HBM traffic", "FLOP/s", legend=False)
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log", exponentformat="SI")
    return _plain(figure)


def traffic(portraits: Mapping[str, Portrait]) -> Figure:
    """The roofline of kernels without matrix products: time against bytes, above what the memory takes
    for them at best; both axes are logarithmic."""
    figure = go.Figure()
    bandwidth = next(iter(portraits.values())).bandwidth
    moved = [found.moved for found in portraits.values()]
    across = [min(moved) / 4, max(moved) * 4]
    figure.add_trace(
        go.Scatter(
            x=across, y=[bytes_ / bandwidth * 1e3 for bytes_ in across],
            mode="lines", name="roof", hoverinfo="skip",
        )
    )  # fmt: skip
    for name, found in portraits.items():
        share = found.moved / bandwidth * 1e3 / found.latency
        figure.add_trace(
            go.Scatter(
                x=[found.moved], y=[found.latency], mode="markers+text", name=name,
                text=[name], textposition="top center", marker={"size": 11},
                hovertemplate="%{x:.3s}B, %{y:.4g} ms: " + f"{share:.0%} of the memory's rate"
                + f"<extra>{name}</extra>",
            )
        )  # fmt: skip
    title = "roofline: time against HBM bytes"
    _shaped(figure, title, "bytes between HBM and the chip", "ms", legend=False)
    figure.update_xaxes(type="log", exponentformat="SI", ticksuffix="B")
    figure.update_yaxes(type="log", rangemode="normal")
    return _plain(figure)


def engines(name: str, found: Portrait) -> Figure:
    """How busy each engine is over the kernel's time."""
    names = [engine for engine in found.busy if any(found.busy[engine])]
    width = found.latency / max((len(found.busy[engine]) for engine in names), default=1)
    figure = go.Figure(
        go.Heatmap(
            z=[found.busy[engine] for engine in names], y=names, x0=width / 2, dx=width,
            zmin=0, zmax=1, showscale=False,
            hovertemplate="%{y} at %{x:.4g} ms: %{z:.0%}<extra></extra>",
        )
    )  # fmt: skip
    return _shaped(figure, f"engines over time, {name}", "ms", "", legend=False, height=210)


def _shaped(
    figure: go.Figure, title: str, x: str, y: str, *, legend: bool, height: int = 300
) -> Figure:
    figure.update_layout(
        title={"text": title, "font": {"size": 14}, "x": 0.01}, height=height, margin=MARGIN,
        showlegend=legend, template="none", xaxis_title=x, yaxis_title=y,
        yaxis_rangemode="tozero" if y == "ms" else "normal",
        legend={"orientation": "h", "y": -0.25},
    )  # fmt: skip
    return _plain(figure)


def _plain(figure: go.Figure) -> Figure:
    found: Figure = json.loads(figure.to_json())
    return found


def drawn(problems: Sequence[ProblemStory], names: Sequence[str]) -> dict[str, Figure]:
    """All figures of one problem, of one run or of several side by side."""
    curves = dict(zip(names, problems, strict=True))
    figures = {"evaluations": progress(curves)}
    if any(step.seconds for problem in problems for step in problem.steps):
        figures["seconds"] = progress(curves, seconds=True)
    portraits: dict[str, Portrait] = {}
    for name, problem in curves.items():
        if problem.start_portrait is not None:
            portraits.setdefault("before", problem.start_portrait)
        if problem.best_portrait is not None and problem.speedup and problem.speedup > 1:
            portraits["after" if len(curves) == 1 else name] = problem.best_portrait
    if any(found.intensity for found in portraits.values()):
        figures["roofline"] = roofline(portraits)
    elif portraits and all(found.moved for found in portraits.values()):
        figures["roofline"] = traffic(portraits)
    for name, found in portraits.items():
        figures[f"engines {name}"] = engines(name, found)
    return figures
