"""What each version of the `nki` package added and removed, as `versions.csv` has it, and which version a kernel is
for, as it says or as the names that it uses tell.

Source: "NKI Migration Guides" and "Release Notes for Neuron Component: NKI" of SDK 2.32, whole, and what is public of
those of 2.33 with "Announcing changes to NKI specialization".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from accelopt.sim.call_sites import running_line
from accelopt.sim.errors import KernelError, SourceLine
from accelopt.sim.tracer import active
from accelopt.tables import packaged_table

RELEASES = {"0.3": "2.29", "0.4": "2.30", "0.5": "2.31", "0.6": "2.32", "0.7": "2.33"}
"""The SDK of each version that is understood, the oldest first."""
VERSIONS = tuple(RELEASES)
NEWEST = VERSIONS[-1]


class Change(NamedTuple):
    """The version that added or removed a name, and what to write where it is not there (empty: nothing
    stands in its place). A kernel that has a name which does not `tell` is for the newest all the same,
    unless it is said: the mistake is likelier than the older version."""

    version: str
    advice: str = ""
    tells: bool = True


def changes(change: str) -> dict[str, Change]:
    """What was `added` or `removed`, by name."""
    return {
        row["name"]: Change(row["version"], row["advice"], row["tells"] == "yes")
        for row in packaged_table("sim/dialects/nki/versions.csv")
        if row["change"] == change
    }


_ADDED, _REMOVED = changes("added"), changes("removed")
_ALWAYS = Change(VERSIONS[0])


class Use(NamedTuple):
    """A name that a kernel uses, and where."""

    name: str
    version: str
    place: SourceLine


class Versions:
    """The versions that a kernel may be for: `said` alone, or all that have what it has used so far."""

    def __init__(self, said: str = "") -> None:
        self.said = said
        self.newest: Use | None = None  # of what was used, that which came last
        self.oldest: Use | None = None  # of what was used and removed, that which went first
        self.refused: set[str] = set()

    def refusal(self, name: str, place: SourceLine) -> KernelError | None:
        """Notes that the kernel uses a name of the table. The error where no version has it beside what
        was said and used; each name once."""
        added, removed = _ADDED.get(name), _REMOVED.get(name)
        known = self.said or ("" if (added or removed or _ALWAYS).tells else NEWEST)
        error = _against(known, name, added, removed) if known else None
        if added is not None and (self.newest is None or _less(self.newest.version, added.version)):
            self.newest = Use(name, added.version, place)
        if removed is not None and (
            self.oldest is None or _less(removed.version, self.oldest.version)
        ):
            self.oldest = Use(name, removed.version, place)
        if error is None and self.newest and self.oldest:
            error = _no_version_has_both(self.oldest, self.newest, name)
        if error is None or name in self.refused:
            return None
        self.refused.add(name)
        return error


def _against(
    version: str, name: str, added: Change | None, removed: Change | None
) -> KernelError | None:
    change, how = None, ""
    if added is not None and _less(version, added.version):
        change, how = added, "came with"
    elif removed is not None and not _less(version, removed.version):
        change, how = removed, "was removed in"
    if change is None:
        return None
    said = f"{_short(name)} {how} NKI {change.version}, and the kernel is for NKI {version}."
    return KernelError("nki_version", said, change.advice)


def _no_version_has_both(old: Use, new: Use, name: str) -> KernelError | None:
    if _less(new.version, old.version):
        return None
    other = new if name == old.name else old
    return KernelError(
        "nki_version",
        f"no version of NKI has both {_short(old.name)}, which was removed in {old.version}, and "
        f"{_short(new.name)}, which came with {new.version} (the other is in line {other.place.line}).",
        _REMOVED[old.name].advice,
    )


def _less(one: str, other: str) -> bool:
    return VERSIONS.index(one) < VERSIONS.index(other)


def _short(name: str) -> str:
    for home, short in (("language", "nl"), ("isa", "nisa"), ("collectives", "ncc")):
        name = name.replace(f"nki.{home}.", f"{short}.")
    return name


def use(name: str) -> None:
    """Refuses a name of the table that the kernel which is traced cannot have; nothing outside of a
    trace."""
    tracer = active()
    if tracer is None or not isinstance(tracer.versions, Versions):
        return
    error = tracer.versions.refusal(name, running_line() if tracer.depth else tracer.entry)
    if error is not None:
        tracer.refuse(error)


def advice(home: str) -> dict[str, str]:
    """What to write in the place of the names that versions removed from a module."""
    return {
        name.rpartition(".")[2]: f"Removed in NKI {change.version}: {change.advice}"
        for name, change in _REMOVED.items()
        if name.rpartition(".")[0] == home
    }


def checked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose calls by a kernel are uses of `name`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        use(name)
        return function(*args, **kwargs)

    return call


def changed(home: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Of the functions, properties and constants in `names`, which belong to `home` (a module or a
    class), those that the table has, each checked where it is used."""
    found: dict[str, Any] = {}
    for full in {**_ADDED, **_REMOVED}:
        place, _, name = full.rpartition(".")
        if place != home or name not in names:
            continue
        value = names[name]
        if isinstance(value, property):
            assert value.fget is not None
            found[name] = property(checked(full, value.fget))
        elif callable(value):
            found[name] = checked(full, value)
        elif home == "tile_size":
            found[name] = property(checked(full, functools.partial(_constant, value)))
    return found


def _constant(value: Any, _: object) -> Any:
    return value
