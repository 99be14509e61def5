"""The number formats that a kernel may compute in, and the accuracy that they leave.

The contract: no narrower than the kernel's inputs, unless the reference (`precision = "bfloat16"`) or
the user (`--precision bfloat16`) allows more. Where all inputs are float32 and nothing more is
allowed, that is NKIBench's own rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from accelopt.errors import ConfigError
from accelopt.parsing import parse_python
from accelopt.sim import dtypes

ROUNDINGS = 4.0
"""The relative L2 error allowed, in unit roundoffs of the narrowest format: a result that is rounded
once on its way in, twice in between and once on its way out, each time the same way, is that far
off. Independent roundings stay well below (assumption)."""


class Format(NamedTuple):
    """Bits of a floating-point format; the significand's with the leading one."""

    significand: int
    exponent: int

    @property
    def unit(self) -> float:
        """Unit roundoff: half the distance from 1 to the next number."""
        return 2.0**-self.significand

    @property
    def least(self) -> float:
        """The smallest positive number."""
        return 2.0 ** (3 - (1 << (self.exponent - 1)) - self.significand)

    @property
    def largest(self) -> float:
        """The largest number, to within a factor of two."""
        return 2.0 ** ((1 << (self.exponent - 1)) - 1)


SINGLE = Format(24, 8)

NARROW = {
    "tfloat32": Format(11, 8),
    "bfloat16": Format(8, 8),
    "float16": Format(11, 5),
    "float8_e3m4": Format(5, 3),
    "float8_e4m3": Format(4, 4),
    "float8_e4m3fn": Format(4, 4),
    "float8_e5m2": Format(3, 5),
}
"""Formats below float32, by NKI's names."""

PACKED = frozenset(dtypes.name_of(dtype) for dtype in dtypes.PACKED)
SCALE = dtypes.name_of(dtypes.FLOAT8_E8M0FNU)
"""Microscaling formats and their scales, allowed by name only. They widen no bound: who allows one has
a reference that quantizes itself, and the same quantization gives the same elements. Where a rounding
before it decides between two elements, the reference on moved inputs shows how much that is worth."""

SHORT_NAMES = {"half": "float16", "f16": "float16", "fp16": "float16", "bf16": "bfloat16"}
SHORT_NAMES |= {"fp8": "float8_e4m3", "tf32": "tfloat32"}


class Precision(NamedTuple):
    """A contract: the formats that are allowed by name. Empty: float32 and wider. `declared` says that
    some are allowed below those of the inputs. `named` are those that somebody names: they say how exact results
    are. Inputs that are stored in fewer bits than bfloat16 are exact: what is made of them is as exact as of
    bfloat16, unless somebody names their format."""

    formats: tuple[str, ...] = ()
    declared: bool = False
    named: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """True for a format that has the range and the significand of an allowed one."""
        name = SHORT_NAMES.get(name, name)
        if name in self.formats or (name == SCALE and PACKED & {*self.formats}):
            return True
        bits = NARROW.get(name)
        return bits is not None and any(
            bits.significand >= other.significand and bits.exponent >= other.exponent
            for other in map(NARROW.__getitem__, self.narrow)
        )

    def rounds_to(self, name: str) -> bool:
        """True for an allowed format to which results on the way may be rounded: with no fewer digits than bfloat16,
        or than what somebody names. In fewer an input is merely stored."""
        bits = NARROW.get(SHORT_NAMES.get(name, name))
        wide = bits is None or bits.significand >= NARROW["bfloat16"].significand
        return self.allows(name) and (wide or self._replace(formats=self.named).allows(name))

    @property
    def narrow(self) -> tuple[str, ...]:
        """Those formats to which numbers are rounded one by one."""
        return tuple(name for name in self.formats if name in NARROW)

    @property
    def rounded_to(self) -> tuple[Format, ...]:
        """Those to which results on the way may be rounded."""
        bfloat16 = NARROW["bfloat16"]
        unnamed = (name for name in self.narrow if name not in self.named)
        stored = (max(NARROW[name], bfloat16) for name in unnamed)
        return (*stored, *(NARROW[name] for name in self.narrow if name in self.named))

    @property
    def unit(self) -> float:
        """Unit roundoff of the coarsest format that is named, or that results may be rounded to where none is."""
        named = [NARROW[name] for name in self.named if name in NARROW]
        return max([SINGLE.unit, *(one.unit for one in named or self.rounded_to)])

    @property
    def least(self) -> float:
        """The smallest positive number of the format that has least range, of those."""
        return max([SINGLE.least, *(one.least for one in self.rounded_to)])

    @property
    def largest(self) -> float:
        """The largest number of the format that has least range, of those."""
        return min([SINGLE.largest, *(one.largest for one in self.rounded_to)])

    def rel_tol(self, published: float) -> float:
        """The bound of the relative L2 error: the published one, or what the formats need."""
        return max(published, ROUNDINGS * self.unit) if self.narrow else published

    def __str__(self) -> str:
        return ", ".join(self.formats) or "float32"


def is_float(dtype: np.dtype[Any]) -> bool:
    """True for NumPy's floating-point formats and those of ml_dtypes, whose kind is V."""
    return dtype.kind == "f" or dtype.name in NARROW


def contract(inputs: Sequence[Any], *more: Iterable[str]) -> Precision:
    """The contract for a kernel with these inputs, and the formats that are allowed besides."""
    found = [dtypes.name_of(value.dtype) for value in inputs if isinstance(value, np.ndarray)]
    return contract_for(found, *more)


def contract_for(dtype_names: Iterable[str], *more: Iterable[str]) -> Precision:
    """The same for inputs of these formats."""
    own = {*dtype_names} & (NARROW.keys() | PACKED)
    named = set[str]().union(*more)
    return Precision(tuple(sorted(own | named)), not named <= own, tuple(sorted(named)))


def formats_of(text: str) -> tuple[str, ...]:
    """The formats in `bfloat16` or `bfloat16,float8_e4m3`. Raises ConfigError for others."""
    names = [SHORT_NAMES.get(name.strip(), name.strip()) for name in text.split(",")]
    for name in names:
        if name not in (*NARROW, *PACKED, "float32"):
            known = ", ".join((*NARROW, *sorted(PACKED)))
            raise ConfigError(f"no precision {name!r}; there are float32, {known}")
    return tuple(sorted(set(names) - {"float32"}))


def declared(reference: str) -> tuple[str, ...]:
    """The formats that a reference module's text allows by `precision = "..."`. Raises ConfigError
    for a precision that is no literal or does not exist."""
    try:
        tree = parse_python(reference)
    except (SyntaxError, ValueError):
        return ()  # whoever loads it says so
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == "precision" for target in node.targets
        ):
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return formats_of(node.value.value)
            raise ConfigError(f"line {node.lineno}: precision must be a string such as 'bfloat16'")
    return ()


def in_single(value: Any) -> Any:
    """Floating-point arrays narrower than float32 as float32; everything else as it is."""
    if isinstance(value, np.ndarray) and value.dtype.name in NARROW:
        return value.astype(np.float32)
    return value


def in_double(value: Any) -> Any:
    """Floating-point arrays as float64; everything else as it is."""
    if isinstance(value, np.ndarray) and is_float(value.dtype):
        return value.astype(np.float64)
    return value


def in_few_bits(values: np.ndarray) -> np.ndarray:
    """Where numbers have eight bits at most, as those that bfloat16 holds."""
    return np.asarray((values.astype(np.float64, copy=False).view(np.uint64) << 19) == 0)
