"""What earlier attempts taught, as prompts show it."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.prompts import quote_words
from accelopt.findings import Attempt, Finding

MOST_SHOWN = 5
NOTHING_YET = "Nothing yet."


def lessons_text(findings: Sequence[Finding], recalled: Sequence[Finding] = ()) -> str:
    """The latest attempts of this run, newest first, then those of earlier runs; somebody else's words
    quoted."""
    latest = [_lesson(finding) for finding in reversed(findings[-MOST_SHOWN:])]
    earlier = [_lesson(finding, earlier=True) for finding in recalled]
    return "\n".join(latest + earlier) or NOTHING_YET


def _lesson(finding: Finding, *, earlier: bool = False) -> str:
    attempt, reflexion = finding.attempt, finding.reflexion
    place = f"earlier run on {finding.problem}" if earlier else f"round {attempt.round_num}"
    method = f"{finding.method}: " if finding.method else ""
    lines = [
        f"- {place}, against {attempt.bottleneck_category} ({finding.resource or 'unknown'}): "
        f"{method}{quote_words(finding.change)}: {outcome_text(attempt)}"
    ]
    if reflexion is not None:
        for title, words in (
            ("learned", reflexion.lessons),
            ("do not", reflexion.avoid_patterns),
            ("try", reflexion.try_patterns),
        ):
            lines += [f"  - {title}: {quote_words(word)}" for word in words[:3]]
    return "\n".join(lines)


def outcome_text(attempt: Attempt) -> str:
    """In one sentence, what came of an attempt."""
    if not attempt.passed_verification:
        return f"failed: {quote_words(attempt.error_message or 'no kernel was written', 300)}"
    change = attempt.improvement_pct
    if change is None or attempt.time_after_ms is None:
        return "correct, but not timed"
    words = f"{change:.1f}% of the time saved" if change > 0 else f"{-change:.1f}% slower"
    return f"{attempt.time_before_ms:.4g} ms to {attempt.time_after_ms:.4g} ms, {words}"
