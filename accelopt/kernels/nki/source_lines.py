"""The kernel's own words: its source lines, and the names of its variables."""

from __future__ import annotations

import re
from pathlib import Path

from accelopt.errors import printable
from accelopt.sim.errors import SourceLine

ASSIGNMENT = re.compile(r"\s*([A-Za-z_]\w*)\s*(?::[^=]*)?=[^=]")
NUMBERED = re.compile(r"\bt\d+\b")


class Sources:
    """Lines of kernel files, for as long as those can be read."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}

    def whole(self, source: SourceLine) -> str:
        """The text of the file, empty when it cannot be read."""
        if source.file not in self._files:
            path = Path(source.file)
            text = path.read_text(errors="replace") if path.is_file() else ""
            self._files[source.file] = text
        return self._files[source.file]

    def line(self, source: SourceLine) -> str:
        """The whole line, empty when there is none."""
        lines = self.whole(source).splitlines()
        return lines[source.line - 1] if 0 < source.line <= len(lines) else ""

    def text(self, source: SourceLine, width: int = 100) -> str:
        """The line without its indentation, shortened."""
        text = printable(self.line(source).strip())
        return text if len(text) <= width else text[: width - 3] + "..."

    def name(self, tensor: str, source: SourceLine) -> str:
        """What the kernel calls a tensor: its declared name, or the variable it is assigned to."""
        if not NUMBERED.fullmatch(tensor):
            return tensor
        found = ASSIGNMENT.match(self.line(source))
        return found[1] if found else tensor

    def named(self, text: str, source: SourceLine) -> str:
        """What is said of a line, with the kernel's words for the tensors that it gives no name."""
        return NUMBERED.sub(lambda found: self.name(found[0], source), text)
