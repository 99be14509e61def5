"""The front ends of the Neuron compiler that the simulated core emulates, by version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class FrontEnd(NamedTuple):
    """The dialect that it takes, and the releases it stands for."""

    dialect: str
    releases: str


FRONT_ENDS: Mapping[str, FrontEnd] = {
    "2.21": FrontEnd("neuronxcc", "SDK 2.21"),
    "2.26": FrontEnd("neuronxcc", "SDK 2.26 to 2.28"),
    "0.6": FrontEnd("nki", "nki 0.3 to 0.7"),
}
"""What each decides by, and which is the default: `sim/timing/compiler_constants.py`."""


def front_end(version: str) -> str:
    """A front end by the releases it stands for, as it stands beside a time; empty for none."""
    known = FRONT_ENDS.get(version)
    return f"{known.releases} front end" if known else ""


def simulated_on(target: str, version: str) -> str:
    """What a predicted time is of, as it stands beside it: the target and the front end."""
    return ", ".join(filter(None, (f"simulated {target}", front_end(version))))


def wrong_front_end(version: str, dialect: str = "") -> str:
    """What is wrong with asking for a version, for kernels of `dialect` where one is given; empty where
    nothing is. Empty, the default of a dialect and a target, fits all."""
    if version and version not in FRONT_ENDS:
        known = ", ".join(f"{name} ({one.releases})" for name, one in FRONT_ENDS.items())
        return f"--compiler {version}: there are {known}."
    own = FRONT_ENDS[version].dialect if version else dialect
    if dialect in ("", own):
        return ""
    fitting = " or ".join(name for name, one in FRONT_ENDS.items() if one.dialect == dialect)
    takes = f"takes kernels of {own}, and this one is of {dialect}: ask for {fitting}."
    return f"--compiler {version} {takes}"
