"""Finding again what earlier attempts taught: by problem, bottleneck and method."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from accelopt.findings import Finding

MOST_RECALLED = 25
SAME_PROBLEM, SAME_BOTTLENECK, SAME_METHOD = 4, 2, 1


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
