"""How a graph search went, from what its strategy told: each step as a line, and a report with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

from accelopt.evaluation import Status
from accelopt.experience import Transition
from accelopt.search.method_catalog import SUCCESS, ReGraph

AT = (5, 10, 20)  # evaluations at which the speedup is told
BEST_EDGES = 10
NORMAL_95 = 1.959964  # standard deviations on either side that hold 95% of a normal distribution
NOT_COMPILED = (Status.COMPILE_ERROR.value, Status.REFUSED.value)

EventRow = Mapping[str, Any]


class Share(NamedTuple):
    """`won` of `tried`, with the interval that holds the true share with 95% (Wilson)."""

    won: int
    tried: int

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.won / self.tried if self.tried else None

    @property
    def interval(self) -> tuple[float, float]:
        """Where it lies with 95%; anywhere, of nothing."""
        if not self.tried:
            return 0.0, 1.0
        n, p, z2 = self.tried, self.won / self.tried, NORMAL_95**2
        middle = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = NORMAL_95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
        return max(0.0, middle - half), min(1.0, middle + half)

    def record(self) -> dict[str, object]:
        """As JSON."""
        low, high = self.interval
        return {"won": self.won, "tried": self.tried, "share": self.value, "low": low, "high": high}

    def __str__(self) -> str:
        if not self.tried:
            return "none"
        low, high = self.interval
        return f"{self.won} of {self.tried} ({low:.0%} to {high:.0%})"


class Spent(NamedTuple):
    """What models cost."""

    tokens: int = 0
    dollars: float = 0.0


NOTHING_SPENT = Spent()


class Report(NamedTuple):
    """What `regraph_metrics.json` holds; shares with their intervals."""

    compiled: Share
    correct: Share
    duplicates: int
    speedups: dict[int, float]
    best_edges: Share
    other_edges: Share
    existed: Share
    methods: int
    hot: Share
    spent: Spent

    def record(self) -> dict[str, object]:
        """As JSON."""
        right = self.correct.won
        return {
            "compile_rate": self.compiled.record(),
            "correctness_rate": self.correct.record(),
            "duplicates": self.duplicates,
            "speedup_at": {str(count): value for count, value in self.speedups.items()},
            "win_rate_best_edges": self.best_edges.record(),
            "win_rate_other_edges": self.other_edges.record(),
            "relabelled_existed": self.existed.record(),
            "catalog_size": self.methods,
            "edits_in_hot_region": self.hot.record() if self.hot.tried else None,
            "tokens_per_correct_kernel": self.spent.tokens / right if right else None,
            "dollars_per_correct_kernel": self.spent.dollars / right if right else None,
        }

    def __str__(self) -> str:
        gains = ", ".join(f"{value:.3f} at {count}" for count, value in self.speedups.items())
        lines = [
            f"compiled {self.compiled}, correct {self.correct}, {self.duplicates} built again",
            f"speedup {gains or 'none'}",
            f"steps that won along the {BEST_EDGES} best edges known before {self.best_edges}, along others "
            f"{self.other_edges}",
            f"named by a model as known before {self.existed}; the catalog has {self.methods} methods",
        ]
        if self.hot.tried:
            lines.append(f"edits that touched what limited the kernel before {self.hot}")
        if self.spent.tokens and self.correct.won:
            tokens, dollars = (value / self.correct.won for value in self.spent)
            lines.append(f"{tokens:.0f} tokens and {dollars:.4f} dollars a correct kernel")
        return "\n".join(lines)


def report_of(
    rows: Sequence[Transition],
    learned: ReGraph,
    named: Iterable[tuple[str, bool]],
    catalog: Iterable[str],
    duplicates: int = 0,
    spent: Spent = NOTHING_SPENT,
    missed: Iterable[bool] = (),
) -> Report:
    """Of a search's transitions `rows`, where `learned` was known before. `named` are the methods that a
    model's steps were given, and whether they existed; `catalog` all names that there were before;
    `missed` says of each edit whose compiled text was compared whether it left the hot region alone."""
    steps, edits = [*named], [*missed]
    best = {
        edge
        for _, edge in sorted(
            (-learned.value(before, method), (before, method))
            for before, after in learned.edges.items()
            for method in after
        )[:BEST_EDGES]
    }
    along = [row for row in rows if (row.from_method, row.to_method) in best]
    others = [row for row in rows if (row.from_method, row.to_method) not in best]
    return Report(
        compiled=Share(sum(row.status not in NOT_COMPILED for row in rows), len(rows)),
        correct=Share(sum(row.ok for row in rows), len(rows)),
        duplicates=duplicates,
        speedups={
            count: max([1.0, *(row.speedup or 0.0 for row in rows[:count])])
            for count in AT
            if count <= len(rows)
        },
        best_edges=_won(along),
        other_edges=_won(others),
        existed=Share(sum(existed for _, existed in steps), len(steps)),
        methods=len({*catalog, *learned.nodes, *(name for name, _ in steps)}),
        hot=Share(edits.count(False), len(edits)),
        spent=spent,
    )


def _won(rows: Sequence[Transition]) -> Share:
    faster = [
        row.mean_ms < (1 - SUCCESS) * row.parent_ms
        for row in rows
        if row.mean_ms is not None and row.parent_ms is not None
    ]
    return Share(sum(faster), len(rows))


def events_text(events: Iterable[EventRow], kernel: str) -> str:
    """`events.jsonl`: a line for each kernel that was asked for, numbered in the order of telling."""
    rows = ({"t": number, "kernel": kernel, **event} for number, event in enumerate(events))
    return "".join(json.dumps(row) + "\n" for row in rows)


def trace_text(events: Iterable[EventRow], kernel: str, baseline: float | None, ended: str) -> str:
    """`trace.md`: the way to each kernel that was asked for, what it was, and each new best."""
    lines = [f"# {kernel}", ""]
    lines += [f"Baseline {baseline:.4g} ms." if baseline else "The baseline has no time.", ""]
    best = baseline or float("inf")
    for number, event in enumerate(events):
        way = " ▸ ".join(key[:8] for key in event["path"])
        after = event["rollout_of"]
        follows = f", rollout of job {after}" if after is not None else ""
        lines.append(
            f"{number}. {way} ▸ **{event['canonical_method']}**{follows}: {event['action']}"
        )
        time = event["mean_ms"]
        if time is None:
            lines.append(f"   {event['status']}")
            continue
        state = str(event["child_state"] or "")[:8]
        lines.append(f"   {state}, {time:.4g} ms{', **new best**' if time < best else ''}")
        best = min(best, time)
    return "\n".join([*lines, "", f"Ended: {ended or 'under way'}.", ""])
