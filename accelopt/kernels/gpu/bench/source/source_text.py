"""What a solution's text must be like before it is read as Python."""

from __future__ import annotations

import importlib.util
import io
import sys
import tokenize
from functools import cache
from typing import NamedTuple

from accelopt.kernels.gpu.bench.source.allow_lists import MODULES
from accelopt.kernels.gpu.bench.source.refusal_reasons import REASONS
from accelopt.kernels.prompt_injection_check import words_to_a_model

_TAKEN = {name.split(".")[0] for name in MODULES | set(REASONS)} | sys.stdlib_module_names


@cache
def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def is_absent(full: str) -> bool:
    """Whether a name is of a module that nobody has: it stands for nothing, and importing it fails."""
    top = full.split(".")[0]
    return top not in _TAKEN and not _is_installed(top)


class Violation(NamedTuple):
    """One forbidden thing in a source."""

    file: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.text}` {self.reason}"


def of_the_files(paths: list[str]) -> list[Violation]:
    """Files that others of the solution would import in the place of a library."""
    tops = {path: path.split("/")[0].removesuffix(".py") for path in paths}
    return [
        Violation(path, 1, path, "has the name of a library's module")
        for path, top in tops.items()
        if top in _TAKEN and len(paths) > 1
    ]


def of_the_text(path: str, text: str) -> list[Violation]:
    """Words to a model, and an encoding in which the text is another one."""
    found = [
        Violation(path, finding.line, finding.text, "speaks to a model instead of a reader")
        for finding in words_to_a_model(text)
    ]
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text.encode(errors="replace")).readline)
    except SyntaxError:
        encoding = "an unknown encoding"
    if encoding not in ("utf-8", "utf-8-sig"):
        found.append(Violation(path, 1, encoding, "is not the encoding that the check reads"))
    return found
