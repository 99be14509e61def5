"""What a fixer is told of a kernel that failed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from accelopt.evaluation import Evaluation, Status
from accelopt.nodes import Node

if TYPE_CHECKING:
    from accelopt.kernels.language import Language

KERNEL_FILE = "kernel.py"  # what a language calls the kernel's file in its messages
UNKNOWN = re.compile(r"\b(?:nl|nisa|nki[.\w]*|nki[.\w]*') has no attribute '(\w+)'")
LONGEST_LINE = 400  # characters
FRAME = re.compile(r'^  File "([^"]+)", line \d+')


async def error_text(node: Node, language: Language) -> str:
    """What a fixer is told: the kind of failure, then every violated rule or how outputs differ, where
    that is known, else the message; failed checks; and what stands of the kernel's own in a traceback."""
    evaluation = node.evaluation
    found = await language.faults(node)
    checks = _failed_checks(evaluation)
    broken = evaluation.status is Status.COMPILE_ERROR and found
    message = "" if broken else evaluation.message
    own = "" if found else own_frames(evaluation.traceback)
    parts = [f"{evaluation.status.value}: {message}".rstrip(" :"), *checks, found, own]
    if unknown := UNKNOWN.search(f"{message} {found}"):
        parts.append(language.look_up(unknown[1], node.source))
    return "\n".join(dict.fromkeys(part for part in parts if part.strip()))


def verdict_text(evaluation: Evaluation) -> str:
    """The kind of failure, its message and checks."""
    checks = _failed_checks(evaluation)
    parts = [f"{evaluation.status.value}: {evaluation.message}", *checks]
    return "\n".join(dict.fromkeys(part for part in parts if part.strip()))


def _failed_checks(evaluation: Evaluation) -> list[str]:
    """The checks that failed, without the one that is the message."""
    failed = [str(check) for check in evaluation.checks if not check.passed]
    return [one for one in failed if one != evaluation.message]


def own_frames(traceback: str) -> str:
    """Of a traceback what is the kernel's: its frames, without ours, and what its Python printed."""
    kept, skipping = list[str](), False
    for line in traceback.splitlines():
        frame = FRAME.match(line)
        if frame:
            skipping = Path(frame[1]).name != KERNEL_FILE
        elif not line.startswith(" "):
            skipping = line.startswith("Traceback")
        shown = line[:LONGEST_LINE]
        if not skipping and kept[-1:] != [shown]:  # what floods repeats itself
            kept.append(shown)
    return "\n".join(kept).strip()
