"""`report.html`: one file that needs no network, from the stories of one run or of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from accelopt.report.diffs import DiffRow, side_by_side
from accelopt.report.figures import STYLE, drawn
from accelopt.report.story import Portrait, ProblemStory, Story, StoryStep
from accelopt.tables import packaged_text

REPORT = "report.html"  # in the folder of a run


class Branch(NamedTuple):
    """A kernel in the tree of a search: what it gave over its parent, and what came of it."""

    step: StoryStep
    gain: float | None
    on_path: bool
    children: tuple[Branch, ...]

    @property
    def open(self) -> bool:
        """Shown unfolded: the way to the best kernel."""
        return self.on_path


class HeatLine(NamedTuple):
    """A source line with its share of the critical path, 0 to 1."""

    number: int
    text: str
    share: float
    operations: str


class Section(NamedTuple):
    """One problem of one run, ready to be written."""

    anchor: str
    problem: ProblemStory
    tree: Branch | None
    diff: list[DiffRow]
    heat: list[HeatLine]
    failures: list[tuple[str, int, str]]
    account: list[tuple[str, str]]


def page(stories: Sequence[Story]) -> str:
    """The whole page as HTML text."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: packaged_text(f"report/page/{name}")), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    environment.filters["ms"] = lambda value: "" if value is None else f"{value:.4g} ms"
    environment.filters["share"] = lambda value: "" if value is None else f"{value:.0%}"
    environment.filters["times"] = lambda value: "" if value is None else f"{value:.2f}×"
    names = list(dict.fromkeys(p.name for story in stories for p in story.problems))
    groups = {
        name: [(s, p) for s in stories for p in s.problems if p.name == name] for name in names
    }
    figures = {
        f"problem{number}": [
            *map(Markup, drawn([p for _, p in group], [s.name for s, _ in group]).values())
        ]
        for number, group in enumerate(groups.values())
    }
    return environment.get_template("page.html.j2").render(
        stories=stories,
        groups=[
            (f"problem{number}", name, [(s, section(p, f"p{number}r{at}")) for at, (s, p)
                                        in enumerate(group)])
            for number, (name, group) in enumerate(groups.items())
        ],
        figures=figures,
        figure_style=Markup(STYLE),
    )  # fmt: skip


def section(problem: ProblemStory, anchor: str) -> Section:
    """What the page shows of one problem."""
    changed = problem.best_source and problem.best_source != problem.start_source
    source = problem.best_source or problem.start_source
    found = problem.best_portrait if changed else problem.start_portrait
    return Section(
        anchor,
        problem,
        _tree(problem),
        side_by_side(problem.start_source, problem.best_source) if changed else [],
        _heat(source, found),
        _failures(problem.steps),
        [(head, text) for head, text in (
            ("What would make the best kernel faster", found.advice if found else ""),
            ("Engines of the best kernel, and what they wait for", found.gaps if found else ""),
            ("Predicted and measured", "\n".join(problem.compared)),
        ) if text],
    )  # fmt: skip


def _tree(problem: ProblemStory) -> Branch | None:
    """The kernels by their parents, and the way to the best one marked."""
    steps = {step.key: step for step in problem.steps}
    roots = [step for step in problem.steps if step.parent not in steps]
    if not roots:
        return None
    timed = [step for step in problem.steps if step.latency is not None]
    path, at = set(), min(timed, key=lambda step: step.latency or 0.0).key if timed else ""
    while at in steps and at not in path:
        path.add(at)
        at = steps[at].parent
    children: dict[str, list[StoryStep]] = {}
    for step in problem.steps:
        if step.parent in steps and step.parent != step.key:
            children.setdefault(step.parent, []).append(step)

    def branch(step: StoryStep, above: float | None) -> Branch:
        gain = above / step.latency if above and step.latency else None
        below = sorted(children.pop(step.key, []), key=lambda s: (s.latency or 1e300, s.number))
        return Branch(
            step, gain, step.key in path, tuple(branch(one, step.latency) for one in below)
        )

    return branch(roots[0], None)


def _heat(source: str, found: Portrait | None) -> list[HeatLine]:
    shares = {line.line: line for line in found.lines} if found else {}
    lines = []
    for number, text in enumerate(source.splitlines(), 1):
        line = shares.get(number)
        lines.append(
            HeatLine(number, text, line.share if line else 0.0, line.operations if line else "")
        )
    return lines


def _failures(steps: Sequence[StoryStep]) -> list[tuple[str, int, str]]:
    """Reasons of failed kernels, how many there are of each, and one of their messages."""
    failed = [step for step in steps if step.latency is None]
    counts = Counter(step.status for step in failed)
    said = {step.status: step.message for step in reversed(failed)}
    return [(status.replace("_", " "), n, said[status]) for status, n in counts.most_common()]


def versions() -> dict[str, Any]:
    """The versions that a result depends on."""
    import platform
    from importlib.metadata import version

    from accelopt import __version__

    return {
        "accelopt": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "ml_dtypes")},
        "platform": platform.platform(),
    }
