"""The report's figures as SVG. Colours are classes, which the page gives for light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from accelopt.report.story import Portrait, ProblemStory, StoryStep

WIDTH, HEIGHT = 440, 250  # read on a phone without zooming, where a figure is as wide as the screen
LEFT, RIGHT, TOP, BOTTOM = 62, 428, 30, 204  # of what is plotted
ENGINE_ROW = 30
COLOURS = 4
NARROW = 1.5  # decades, below which a logarithmic axis has ticks at 2 and 5, too
STYLE = """<style>
.plot text { font: 11.5px system-ui, sans-serif; fill: var(--ink, #1d2126); }
.plot .axis { fill: var(--soft, #5d6670); } .plot .mid { text-anchor: middle; } .plot .end { text-anchor: end; }
.plot .grid { stroke: var(--line, #dfe3e6); } .plot path { fill: none; stroke-width: 1.8; }
.plot .c0 { stroke: var(--mark, #2a63c4); } .plot .c1 { stroke: var(--good, #0f7b4f); }
.plot .c2 { stroke: var(--bad, #b3382c); } .plot .c3 { stroke: var(--soft, #5d6670); }
.plot circle { fill: var(--card, #fff); stroke-width: 2; }
.plot path.area { fill: var(--mark, #2a63c4); } .plot rect { fill: none; stroke: var(--line, #dfe3e6); }
</style>"""
"""For pages with figures; without the page's variables the colours are those for light."""


class Axis(NamedTuple):
    """Values from `low` to `high` along one side; `unit` stands behind the ticks' numbers."""

    label: str
    low: float
    high: float
    log: bool = False
    unit: str = ""

    def share(self, value: float) -> float:
        """Where `value` lies between the ends, 0 to 1."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / ((self.high - self.low) or 1)

    def ticks(self) -> list[float]:
        """Round numbers between the ends."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if math.log10(self.high / self.low) < NARROW else (1,)
            found = [step * 10.0**decade for decade in decades for step in steps]
            return [tick for tick in found if self.low <= tick <= self.high]
        wide = (self.high - self.low or 1) / 5
        unit = 10.0 ** math.floor(math.log10(wide))
        step = next(unit * n for n in (1, 2, 5, 10) if unit * n >= wide * 0.999)
        step = max(step, 1.0) if self.label == "evaluations" else step
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _number(value: float, unit: str) -> str:
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit and value >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}".strip()


def _x(axis: Axis, value: float) -> float:
    return LEFT + (RIGHT - LEFT) * axis.share(value)


def _y(axis: Axis, value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * axis.share(value)


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def _mark(x: float, y: float, said: str, colour: int) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" class="c{colour % COLOURS}">'
        f"<title>{escape(said)}</title></circle>"
    )


def _path(points: Iterable[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + '"/>'


def _svg(title: str, marks: Iterable[str], height: int = HEIGHT) -> str:
    head = f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg">'
    return f"{head}<title>{escape(title)}</title>{_text(8, 17, title)}{''.join(marks)}</svg>"


def _chart(title: str, x: Axis, y: Axis, marks: Iterable[str]) -> str:
    """The two axes with their ticks, and `marks` on them."""
    parts = [_text((LEFT + RIGHT) / 2, BOTTOM + 34, x.label, "axis mid")]
    for tick in y.ticks():
        at = _y(y, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(_text(LEFT - 6, at + 4, _number(tick, y.unit), "axis end"))
    for tick in x.ticks():
        parts.append(_text(_x(x, tick), BOTTOM + 17, _number(tick, x.unit), "axis mid"))
    if not y.unit:
        parts.append(_text(RIGHT, 17, y.label, "axis end"))
    return _svg(title, [*parts, *marks])


def progress(curves: Mapping[str, ProblemStory], seconds: bool = False) -> str:
    """Best latency so far against evaluations or seconds, one curve a run."""
    label = "seconds" if seconds else "evaluations"
    runs = {name: _best_so_far(problem, seconds) for name, problem in curves.items()}
    reached = [point for points in runs.values() for point in points]
    top = max((best for _, best in reached), default=1.0)
    x = Axis(label, 0, max((at for at, _ in reached), default=1.0) or 1)
    y = Axis("ms", 0, top * 1.05)
    marks = []
    for number, (name, points) in enumerate(runs.items()):
        corners = [(_x(x, at), _y(y, best)) for at, best in points]
        stairs = "".join(f"H{across:.1f}V{down:.1f}" for across, down in corners)
        if corners:
            start = "M{:.1f} {:.1f}".format(*corners[0])
            marks.append(f'<path class="c{number % COLOURS}" d="{start}{stairs}"/>')
            if len(runs) > 1:
                marks.append(_text(RIGHT - 4, corners[-1][1] - 6, name, "end"))
        for (at, best), place in zip(points, corners, strict=True):
            marks.append(_mark(*place, f"{at:.4g} {label}: {best:.4g} ms", number))
    if not seconds:
        failed = [step for one in curves.values() for step in one.steps if step.latency is None]
        marks += [_cross(_x(x, step.number), _y(y, top), step) for step in failed]
    return _chart(f"best so far against {label}", x, y, marks)


def _cross(x: float, y: float, step: StoryStep) -> str:
    """What failed, at the height of the baseline."""
    said = escape(f"{step.number}: {step.status.replace('_', ' ')}")
    shape = f"M{x - 3:.1f} {y - 3:.1f}l6 6m-6 0l6-6"
    return f'<path class="c2" d="{shape}"><title>{said}</title></path>'


def _best_so_far(problem: ProblemStory, seconds: bool) -> list[tuple[float, float]]:
    """Where a better kernel was found, and its ms; then the end of the search."""
    best, points = float("inf"), list[tuple[float, float]]()

    def place(step: StoryStep) -> float:
        return step.seconds if seconds else step.number

    for step in sorted(problem.steps, key=place):
        if step.latency is not None and step.latency < best:
            best = step.latency
            points.append((place(step), best))
    return [*points, (max(map(place, problem.steps)), best)] if points else []


def roofline(portraits: Mapping[str, Portrait]) -> str:
    """Where kernels stand under the machine's roof; both axes are logarithmic."""
    one = next(iter(portraits.values()))
    ridge = one.peak_flops / one.bandwidth
    shown = {name: found for name, found in portraits.items() if found.intensity > 0}
    places = [ridge, *(found.intensity for found in shown.values())]
    low, high = min(places) / 8, max(places) * 8
    x = Axis("FLOPs a byte of HBM traffic", low, high, log=True)
    least = min(low * one.bandwidth, *(found.flops for found in shown.values())) / 2
    y = Axis("FLOP/s", least, one.peak_flops * 2, log=True, unit="F/s")
    roof = [(low, low * one.bandwidth), (ridge, one.peak_flops), (high, one.peak_flops)]
    marks = [_path([(_x(x, a), _y(y, b)) for a, b in roof], "c3")]
    for number, (name, found) in enumerate(shown.items()):
        said = f"{name}: {found.intensity:.3g} FLOP/byte, {_number(found.flops, 'FLOP/s')}"
        marks += _named(_x(x, found.intensity), _y(y, found.flops), name, said, number)
    return _chart("roofline", x, y, marks)


def traffic(portraits: Mapping[str, Portrait]) -> str:
    """The roofline of kernels without matrix products: time against bytes, above what the memory takes
    for them at best; both axes are logarithmic."""
    bandwidth = next(iter(portraits.values())).bandwidth
    moved = [found.moved for found in portraits.values()]
    x = Axis("bytes between HBM and the chip", min(moved) / 4, max(moved) * 4, log=True, unit="B")
    least = [across / bandwidth * 1e3 for across in (x.low, x.high)]
    times = [*least, *(found.latency for found in portraits.values())]
    y = Axis("ms", min(times) / 1.3, max(times) * 1.3, log=True, unit="ms")
    ends = zip((x.low, x.high), least, strict=True)
    marks = [_path([(_x(x, a), _y(y, b)) for a, b in ends], "c3")]
    for number, (name, found) in enumerate(portraits.items()):
        share = found.moved / bandwidth * 1e3 / found.latency
        said = f"{name}: {_number(found.moved, 'B')}, {found.latency:.4g} ms: {share:.0%} of the memory's rate"
        marks += _named(_x(x, found.moved), _y(y, found.latency), name, said, number)
    return _chart("roofline: time against HBM bytes", x, y, marks)


def _named(x: float, y: float, name: str, said: str, number: int) -> list[str]:
    return [_mark(x, y, said, number), _text(x, y - 9 if number else y + 17, name, "mid")]


def engines(name: str, found: Portrait) -> str:
    """How busy each engine is over the kernel's time, one row each."""
    names = [engine for engine in found.busy if any(found.busy[engine])]
    marks, bottom = [], TOP + ENGINE_ROW * len(names)
    for row, engine in enumerate(names):
        shares, foot = found.busy[engine], TOP + ENGINE_ROW * (row + 1)
        step, high = (RIGHT - LEFT) / len(shares), ENGINE_ROW - 6
        tops = "".join(f"V{foot - high * share:.1f}h{step:.2f}" for share in shares)
        said = f"{engine}: at work for {sum(shares) / len(shares):.0%} of the time"
        box = f'<rect x="{LEFT}" y="{foot - high}" width="{RIGHT - LEFT}" height="{high}"/>'
        area = f'<path class="area" stroke="none" d="M{LEFT} {foot}{tops}V{foot}Z"/>'
        marks.append(f"<g><title>{escape(said)}</title>{area}{box}</g>")
        marks.append(_text(LEFT - 6, foot - high / 2 + 4, engine, "axis end"))
    axis = Axis("ms", 0, found.latency)
    for tick in axis.ticks():
        marks.append(_text(_x(axis, tick), bottom + 16, _number(tick, "ms"), "axis mid"))
    return _svg(f"engines over time, {name}", marks, bottom + 26)


def drawn(problems: Sequence[ProblemStory], names: Sequence[str]) -> dict[str, str]:
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
