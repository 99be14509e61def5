"""Prompts: templates with named slots, rendered in one pass; material quoted as data."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt import store
from accelopt.errors import ConfigError

_SLOT = re.compile(r"\{([a-z_]+)\}")


class PromptPair(NamedTuple):
    """A role's system text and the template of its user message."""

    system: str
    user_template: str

    @classmethod
    def read(cls, base: Path, template: Path) -> PromptPair:
        """The two texts from their files. Raises ConfigError when one cannot be read or is empty."""
        return cls(read_text(base), read_text(template))


def read_text(path: Path) -> str:
    """The text of a prompt file. Raises ConfigError when it cannot be read or says nothing."""
    text = store.read_text(path, "the prompt ")
    if not text.strip():
        raise ConfigError(f"the prompt {path} is empty")
    return text


def read_names(path: Path) -> list[str]:
    """A JSON list of names, such as profile_list.json. Raises ConfigError."""
    names = store.read_json(path)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{path} must hold a JSON list of names")
    return names


def render(template: str, slots: Mapping[str, str]) -> str:
    """`template` with each `{name}` of `slots` replaced, once, from left to right.

    Braces that are not slots stay as they are, and so do braces inside the values.
    """
    return _SLOT.sub(lambda match: slots.get(match[1], match[0]), template)


def render_sections(template: str, slots: Mapping[str, str]) -> str:
    """`render`, where a section (from a line `# ...` to the next) of which every slot is empty is left
    out, heading and all."""
    kept = []
    for section in re.split(r"(?m)^(?=# )", template):
        names = [name for name in _SLOT.findall(section) if name in slots]
        if not names or any(slots[name].strip() for name in names):
            kept.append(section)
    return render("".join(kept), slots)


def numbered(text: str) -> str:
    """`text` with its line numbers."""
    return "\n".join(f"{n:4d}  {line}" for n, line in enumerate(text.rstrip().splitlines(), 1))


def quote(text: str, language: str = "") -> str:
    """`text` in a fence that nothing inside it can close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def quote_words(text: str, limit: int = 400) -> str:
    """Somebody else's prose inside a line of ours: one line, in quotation marks, cut at `limit`."""
    line = " ".join(text.split()).replace('"', "'")
    return f'"{line[: limit - 1]}…"' if len(line) > limit else f'"{line}"'


def profile_lines(
    metadata: Mapping[str, object], displayed: Iterable[str], order: random.Random
) -> str:
    """`name: value` for the displayed fields that the profile has, in an order drawn by `order`."""
    shown = set(displayed)
    lines = [f"{name}: {_number(value)}" for name, value in metadata.items() if name in shown]
    order.shuffle(lines)
    return "\n".join(lines) if lines else "(no profile)"


def bullet_list(lines: Sequence[str], nothing: str) -> str:
    """`lines` as a list, or the sentence that says there are none."""
    return "\n".join(f"- {line}" for line in lines) if lines else nothing


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(value)
