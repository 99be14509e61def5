"""Short notes on NKI: on every name of either dialect its signature, operands, engine, limits and use, and
what to know of the dialect as a whole.

The signature is the simulated core's own, so a note cannot promise a parameter that does not exist.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from enum import Enum
from functools import cache
from importlib import import_module

from accelopt.kernels.notes import note_on, notes_in
from accelopt.sim.dialects.dialect import Dialect
from accelopt.tables import packaged_text

PACKAGES: dict[Dialect, str] = {
    "neuronxcc": "accelopt.sim.dialects.neuronxcc",
    "nki": "accelopt.sim.dialects.nki",
}

USUAL = frozenset({"mask", "dtype", "name", "mode", "is_stationary_onezero", "is_moving_onezero",
                   "is_transpose", "tile_position", "tile_size", "perf_mode", "reduce_cmd"})  # fmt: skip
"""Parameters that a signature leaves out: all calls have them, or hardly any kernel wants them."""
COMPANIONS = {
    "nl.matmul": ("nisa.nc_matmul", "nisa.nc_transpose"),
    "nl.exp": ("nisa.activation", "nisa.activation_reduce"),
    "nl.sum": ("nisa.tensor_reduce", "nisa.activation_reduce"),
    "nl.max": ("nisa.tensor_reduce",),
    "nl.multiply": ("nisa.tensor_tensor", "nisa.tensor_scalar"),
    "nl.add": ("nisa.tensor_tensor", "nisa.tensor_scalar"),
    "nl.divide": ("nisa.reciprocal",),
    "nl.transpose": ("nisa.nc_transpose",),
    "nl.where": ("nisa.affine_select",),
    "nl.copy": ("nisa.tensor_copy",),
    "nl.loop_reduce": ("nisa.nc_matmul",),
}
"""What often takes the place of a call, so that who knows the one hears of the other."""
PREFIXED = re.compile(r"\b(nl|nisa)\.(\w+)")
QUOTED = re.compile(r"`(\w+)")
UNLIKE_PROSE = re.compile(r"\b\w+_\w+\b")


def language(dialect: Dialect, target: str) -> str:
    """What to know of a dialect; its first paragraph says which one it is."""
    return packaged_text(f"kernels/nki/notes/{dialect}.txt").strip().replace("{target}", target)


def describe(name: str, dialect: Dialect = "neuronxcc") -> str:
    """The note on `name`, however its module is spelled, or the nearest names that have one."""
    notes = _notes(dialect)
    return note_on(name, {f"{one}{_signature(one, dialect)}": notes[one] for one in notes})


def sheet(texts: Sequence[str], dialect: Dialect = "neuronxcc") -> str:
    """Notes on the calls that `texts` name, with what often takes their place, in the sheet's order."""
    named: set[str] = set()
    for text in texts:
        named.update(f"{module}.{name}" for module, name in PREFIXED.findall(text))
        for word in (*QUOTED.findall(text), *UNLIKE_PROSE.findall(text)):
            named.update({f"nl.{word}", f"nisa.{word}"})
    for name in [*named]:
        named.update(COMPANIONS.get(name, ()))
    told = (name for name, note in _notes(dialect).items() if name in named and _tells(note))
    return "\n".join(f"- {_entry(name, dialect)}" for name in told)


def entries(dialect: Dialect) -> dict[str, tuple[str, str]]:
    """Every public name of a dialect with its signature, empty for a constant, and the note on it."""
    return {name: (_signature(name, dialect), note) for name, note in _notes(dialect).items()}


def _tells(note: str) -> bool:
    """Whether a note says more than its name: formats and engines do not."""
    return not note.startswith(("Format:", "For engine="))


def _entry(name: str, dialect: Dialect) -> str:
    return f"{name}{_signature(name, dialect)}: {_notes(dialect)[name]}"


@cache
def _signature(name: str, dialect: Dialect) -> str:
    """`(data, op0, operand0, engine=None)` as the simulated core takes it; empty for a constant."""
    value = _value(name, dialect)
    if not inspect.isfunction(value):
        return ""
    shown = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.name in USUAL and parameter.default is not parameter.empty:
            continue
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        given = "" if parameter.default is parameter.empty else f"={_shown(parameter.default)}"
        shown.append(f"{star}{parameter.name}{given}")
    return f"({', '.join(shown)})"


def _shown(default: object) -> str:
    return default.name if isinstance(default, Enum) else str(default)


def _value(name: str, dialect: Dialect) -> object:
    """What a name means in a dialect; None where it has none there."""
    module, _, last = name.partition(".")
    room = {"nl": "language", "nisa": "isa"}.get(module)
    if room is None:
        return None
    package = import_module(f"{PACKAGES[dialect]}.{room}")
    return getattr(package, last) if last in package.__all__ else None


@cache
def _notes(dialect: Dialect) -> dict[str, str]:
    """The notes by name: those of `neuronxcc`, and for `nki` those of its own names, where a note of its
    own takes the place of the other's; of instructions without one what the core itself says."""
    notes = notes_in("kernels/nki/notes/names.json")
    if dialect == "nki":
        shared = {name: note for name, note in notes.items() if _value(name, dialect) is not None}
        notes = {**shared, **notes_in("kernels/nki/notes/nki.json")}
    isa = import_module(f"{PACKAGES[dialect]}.isa")
    said = {f"nisa.{name}": inspect.getdoc(getattr(isa, name)) for name in isa.__all__}
    return {**notes, **{name: text for name, text in said.items() if text and name not in notes}}
