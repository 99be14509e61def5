"""Prints the lines of each room and fails above the budget of `pyproject.toml` (`tool.accelopt.lines`)."""

from __future__ import annotations

import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines_by_room(folder: Path) -> Counter[str]:
    """Lines of Python in each folder directly below `folder`; files beside them count as `.`."""
    rooms: Counter[str] = Counter()
    for file in folder.rglob("*.py"):
        inside = file.relative_to(folder).parts[:-1]
        room = "/".join(inside[: 2 if inside[:1] == ("kernels",) else 1]) or "."
        rooms[room] += file.read_bytes().count(b"\n")
    return rooms


def main() -> int:
    """Count, compare."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    over = []
    for name, most in config["tool"]["accelopt"]["lines"].items():
        rooms = lines_by_room(ROOT / name)
        total = sum(rooms.values())
        told = ", ".join(f"{room} {count:,}" for room, count in rooms.most_common())
        print(f"{name}: {total:,} lines of at most {most:,} ({told})")
        if total > most:
            over.append(f"{name} is {total - most:,} lines over its budget: what can go?")
    print(*over, sep="\n", end="\n" if over else "", file=sys.stderr)
    return bool(over)


if __name__ == "__main__":
    sys.exit(main())
