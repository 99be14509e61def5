"""Short notes on the names of a kernel language, looked up as a model spells them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence

from accelopt.tables import packaged_text


def notes_in(path: str) -> dict[str, str]:
    """The notes in a file of a package, by name."""
    notes: dict[str, str] = json.loads(packaged_text(path))
    return notes


def last_part(name: str) -> str:
    """`load` of `tl.load`, ``tl.load()`` or `triton.language.load`."""
    return name.strip().strip("`()").partition("(")[0].split(".")[-1]


def sheet_of(texts: Sequence[str], notes: Mapping[str, str]) -> str:
    """The notes on all names that stand in `texts`, also those with a number behind them (`float4`)."""
    whole = "\n".join(texts)
    return "\n".join(
        f"- {note}"
        for name, note in notes.items()
        if re.search(rf"(?<![A-Za-z_]){re.escape(name.split('.')[-1])}(?![A-Za-z_])", whole)
    )


def note_on(name: str, notes: Mapping[str, str]) -> str:
    """The notes on `name`, however its module is spelled, or the nearest names, and those whose notes have
    the word. Names in `notes` may have their signature."""
    wanted = last_part(name)
    found = [f"{known}: {note}" for known, note in notes.items() if last_part(known) == wanted]
    if found:
        return "\n".join(found)
    plain = {last_part(known): known.partition("(")[0] for known in notes}
    near = [plain[match] for match in difflib.get_close_matches(wanted, plain, n=5, cutoff=0.4)]
    word = wanted.lower() if len(wanted) > 2 else ""
    telling = [
        plain[last_part(known)] for known, note in notes.items() if word and word in note.lower()
    ]
    near = [*dict.fromkeys([*near, *telling[:5]])]
    return f"No note on {name[:80]!r}. " + (f"Near names: {', '.join(near)}." if near else "")
