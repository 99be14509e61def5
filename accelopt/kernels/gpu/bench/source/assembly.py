"""Inline assembly of a solution: PTX for the device, and no clock.

A template is PTX where each statement begins with what only PTX has there: an opcode with a dotted type or
modifier, or one of a few that have none. Assembly of a host, a symbol's name and an assembler's directives
begin otherwise ("PTX ISA", chapter 4).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from accelopt.kernels.gpu.bench.source.refusal_reasons import CLOCK

NO_PTX = "is no PTX: assembly for the device alone may stand there"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_CLOCK = re.compile(r"%+(?:clock|globaltimer|pm\d)\w*")
_BEFORE = re.compile(r"(?:\s+|[{}]|@!?%*\w+\s|[\w$%=]+:(?!:))*")  # braces, guards, labels
_OPCODE = re.compile(r"[a-z]\w*(?:(?:(?:\.|::)\w+)+| +\.[busf]\d+)(?![\w.:=])")
_WITHOUT_TYPE = re.compile(r"(?:ret|exit|trap|brkpt|bra)(?![\w.:=])")
_DIRECTIVE = re.compile(r"\.(?:reg|pragma|shared|local|param)\b")
_OPERANDS_FOLLOW = (",", "{", "[", "(")


def assembly_faults(template: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a template of `asm`, as text and reason."""
    text = _COMMENT.sub(" ", template)
    for match in _CLOCK.finditer(text):
        yield match.group(), CLOCK
    for statement in text.split(";"):
        said = statement[_BEFORE.match(statement).end() :].strip()  # type: ignore[union-attr]
        if said and not _is_ptx(said):
            yield said.splitlines()[0][:60], NO_PTX


def _is_ptx(statement: str) -> bool:
    if "=" in statement.replace("%=", "") or "#" in statement:
        return False
    if not any(form.match(statement) for form in (_OPCODE, _WITHOUT_TYPE, _DIRECTIVE)):
        return False
    # A host's assembler ends statements with lines, too: further lines are operands.
    lines = [line.strip() for line in statement.splitlines() if line.strip()]
    return all(
        before.endswith(_OPERANDS_FOLLOW) or not line[0].isalpha()
        for before, line in itertools.pairwise(lines)
    )
