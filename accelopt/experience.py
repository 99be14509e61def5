"""Experience: what a step of a search taught, as rows that outlive their run, and finding them again.

`Finding` is an attempt against a bottleneck with what was made of it, `Transition` the same step as a
method after the one before; slow and fast pairs are `published.Experience`. `stages/experience.py` makes
rows of a run's results, `agents/experience_text.py` text for prompts, `search/method_catalog.py` sums.
Percentages are 0 to 100, times milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from pydantic import Field

from accelopt.evaluation import LanguageName, MethodName, Row

START = "START"
"""The method that a baseline is said to come from."""
MOST_RECALLED = 25
SAME_PROBLEM, SAME_BOTTLENECK, SAME_METHOD = 4, 2, 1


class Attempt(Row):
    """One step of one worker: the diagnosis, the change, the times before and after."""

    round_num: int
    worker_id: int
    bottleneck_category: str = ""
    root_cause: str = ""
    recommended_fix: str = ""
    config_changes: dict[str, str] = Field(
        default_factory=dict, description='settings of the kernel that changed, as "old->new"'
    )
    time_before_ms: float | None = None
    time_after_ms: float | None = None
    improvement_pct: float | None = Field(default=None, description="of the time, saved")
    is_improvement: bool = False
    compute_sol_pct: float = 0.0
    memory_sol_pct: float = 0.0
    combined_sol_pct: float = 0.0
    passed_verification: bool = False
    error_message: str = Field(default="", description="of one that passed: what was mended first")

    @classmethod
    def timed(cls, before: float | None, after: float | None, **about: Any) -> Attempt:
        """An attempt by the times of the two kernels, None where one failed, and the other fields."""
        saved = 100 * (before - after) / before if before and after else None
        return cls(
            time_before_ms=before,
            time_after_ms=after,
            improvement_pct=saved,
            is_improvement=bool(saved and saved > 0),
            passed_verification=after is not None,
            **about,
        )


class Reflexion(Row):
    """What to make of an attempt: whether diagnosis and fix were right, and what follows."""

    round_num: int
    root_cause_diagnosed: str = ""
    fix_applied: str = ""
    expected_outcome: str = ""
    actual_outcome: str = ""
    performance_delta_pct: float | None = Field(default=None, description="of the time, saved")
    was_diagnosis_correct: bool = False
    was_fix_effective: bool = False
    reasoning: str = ""
    lessons: tuple[str, ...] = ()
    avoid_patterns: tuple[str, ...] = ()
    try_patterns: tuple[str, ...] = ()


class Finding(Row):
    """An attempt with its reflexion, and what both are found again by: the problem, the resource that
    was to be relieved, and the canonical name of what was done, where it has one."""

    problem: str
    target: str = ""
    resource: str = ""
    method: MethodName = ""
    kernel: str = Field(default="", description="key of the kernel that it was tried on")
    change: str = Field(default="", description="what was done, in a sentence")
    attempt: Attempt
    reflexion: Reflexion | None = None
    origin: str = Field(default="", description="the case and round that it comes from")


class Development(Row):
    """How a worker went about one kernel: the states it walked through, what it found, and why it
    holds its problem for finished; empty where it does not. The efficiencies, in percent of the nearest
    peak, are the parent's and the new kernel's; 0 where unknown."""

    path: tuple[str, ...] = ()
    finding: Finding | None = None
    stop: str = ""
    efficiency_before: float = 0.0
    efficiency_after: float = 0.0


class Transition(Row):
    """One evaluated step of a search: a method, after the one that made the kernel it was tried on.

    `t` counts the evaluations of a search from 0. `speedup` and `reward` are against the baseline, the
    reward that of the search; `gain` is ln(parent / new) of the step alone, None where the new kernel
    failed. `variant_dir` is the folder of the kernel, in that of its run.
    """

    t: int = 0
    kernel: str = Field(default="", description="the problem, by the name of its case")
    arch: str = Field(default="", description="of a GPU, such as sm_90")
    from_method: MethodName = START
    to_method: MethodName = Field(min_length=1)
    ok: bool = False
    mean_ms: float | None = None
    baseline_ms: float | None = None
    parent_ms: float | None = None
    speedup: float | None = None
    reward: float | None = None
    gain: float | None = Field(default=None, allow_inf_nan=False)
    language: LanguageName = ""
    target: str = ""
    status: str = ""
    candidate_id: str = ""
    variant_dir: str = ""


def avoided(findings: Iterable[Finding], resource: str) -> frozenset[str]:
    """The patterns that lost, and never won since, where `resource` was to be relieved. `findings`
    are the oldest first."""
    found: set[str] = set()
    for finding in findings:
        if finding.resource == resource and finding.reflexion is not None:
            found.update(finding.reflexion.avoid_patterns)
            found.difference_update(finding.reflexion.try_patterns)
    return frozenset(found)


def recall(
    findings: Sequence[Finding],
    problem: str,
    resource: str = "",
    methods: Collection[str] = (),
    limit: int = MOST_RECALLED,
) -> tuple[Finding, ...]:
    """Those of `findings` (oldest first) that say most about `problem`, whose bottleneck is
    `resource`, and to which `methods` apply: the best match first, the newest of equals. What matches
    in nothing is left out, and of several that say the same the newest stands for all."""

    def match(finding: Finding) -> int:
        return (
            SAME_PROBLEM * (finding.problem == problem)
            + SAME_BOTTLENECK * (bool(resource) and finding.resource == resource)
            + SAME_METHOD * (finding.method in methods)
        )

    newest = list(distinct(reversed(findings)))
    matching = [finding for finding in newest if match(finding)]
    return tuple(sorted(matching, key=match, reverse=True)[:limit])


def distinct(findings: Iterable[Finding]) -> Iterable[Finding]:
    """The first of those that tried the same for the same reason with the same end."""
    seen = set()
    for finding in findings:
        attempt = finding.attempt
        says = (
            finding.problem,
            finding.resource,
            finding.method,
            finding.change,
            attempt.is_improvement,
            attempt.error_message,
        )
        if says not in seen:
            seen.add(says)
            yield finding
