"""Short notes on the names of NKI, for an executor that wants to look one up."""

from __future__ import annotations

import difflib
import json
from functools import lru_cache
from pathlib import Path


def describe(name: str) -> str:
    """The note on `name`, however its module is spelled, or the nearest names that have one."""
    notes = _notes()
    last = name.strip().strip("`()").split(".")[-1]
    found = [f"{known}: {note}" for known, note in notes.items() if known.split(".")[-1] == last]
    if found:
        return "\n".join(found)
    plain = {known.split(".")[-1]: known for known in notes}
    near = [plain[match] for match in difflib.get_close_matches(last, plain, n=5, cutoff=0.4)]
    return f"No note on {name!r}. " + (f"Near names: {', '.join(near)}." if near else "")


@lru_cache(maxsize=1)
def _notes() -> dict[str, str]:
    notes: dict[str, str] = json.loads(Path(__file__).with_name("names.json").read_text())
    return notes
