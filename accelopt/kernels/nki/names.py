"""Short notes on every name of NKI: signature, operands, engine, limits, and how it is used.

The signature is the simulated core's own, so a note cannot promise a parameter that does not exist.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

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


def describe(name: str) -> str:
    """The note on `name`, however its module is spelled, or the nearest names that have one."""
    last = name.strip().strip("`()").split(".")[-1].split("(")[0]
    found = [_entry(known) for known in _notes() if known.split(".")[-1] == last]
    if found:
        return "\n".join(found)
    plain = {known.split(".")[-1]: known for known in _notes()}
    near = [plain[match] for match in difflib.get_close_matches(last, plain, n=5, cutoff=0.4)]
    return f"No note on {name!r}. " + (f"Near names: {', '.join(near)}." if near else "")


def sheet(texts: Sequence[str]) -> str:
    """Notes on the calls that `texts` name, with what often takes their place, in the sheet's order."""
    notes = _notes()
    named: set[str] = set()
    for text in texts:
        named.update(f"{module}.{name}" for module, name in PREFIXED.findall(text))
        for word in (*QUOTED.findall(text), *UNLIKE_PROSE.findall(text)):
            named.update({f"nl.{word}", f"nisa.{word}"})
    for name in [*named]:
        named.update(COMPANIONS.get(name, ()))
    return "\n".join(f"- {_entry(name)}" for name in notes if name in named and _tells(name))


def _tells(name: str) -> bool:
    """Whether a note says more than its name: formats and engines do not."""
    return not _notes()[name].startswith(("Format:", "For engine="))


def _entry(name: str) -> str:
    return f"{name}{_signature(name)}: {_notes()[name]}"


@cache
def _signature(name: str) -> str:
    """`(data, op0, operand0, engine=None)` as the simulated core takes it; empty for a constant."""
    from accelopt.sim.nki import isa, language

    module, _, last = name.partition(".")
    value = getattr({"nl": language, "nisa": isa}.get(module), last, None)
    if not inspect.isfunction(value):
        return ""
    shown = []
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.name in USUAL and parameter.default is not parameter.empty:
            continue
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        given = "" if parameter.default is parameter.empty else f"={parameter.default}"
        shown.append(f"{star}{parameter.name}{given}")
    return f"({', '.join(shown)})"


@lru_cache(maxsize=1)
def _notes() -> dict[str, str]:
    notes: dict[str, str] = json.loads(Path(__file__).with_name("names.json").read_text())
    return notes
