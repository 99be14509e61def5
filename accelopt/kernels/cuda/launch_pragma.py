"""`#pragma launch`: a CUDA kernel's grid, block and dynamic shared memory, in its own source.

    #pragma launch grid(1024, 1, 1) block(256, 1, 1) shared(0)

The line is part of the kernel's text, so that a change of it is another kernel; compilers do not see it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from accelopt.errors import ConfigError

Number: TypeAlias = "ctypes._SimpleCData[Any]"
_PRAGMA = re.compile(
    r"^[ \t]*#[ \t]*pragma[ \t]+launch[ \t]+grid\(([^)]*)\)[ \t]*block\(([^)]*)\)"
    r"(?:[ \t]*shared\(([^)]*)\))?[ \t]*$",
    re.MULTILINE,
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_AXES = ("x", "y", "z")
_SCALARS: Mapping[str, type[Number]] = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_int8, "signed char": ctypes.c_int8, "int8_t": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8, "uint8_t": ctypes.c_uint8,
    "short": ctypes.c_int16, "int16_t": ctypes.c_int16,
    "unsigned short": ctypes.c_uint16, "uint16_t": ctypes.c_uint16,
    "int": ctypes.c_int32, "signed": ctypes.c_int32, "int32_t": ctypes.c_int32,
    "unsigned": ctypes.c_uint32, "unsigned int": ctypes.c_uint32, "uint32_t": ctypes.c_uint32,
    "long": ctypes.c_int64, "long long": ctypes.c_int64, "long int": ctypes.c_int64,
    "long long int": ctypes.c_int64, "int64_t": ctypes.c_int64, "ptrdiff_t": ctypes.c_int64,
    "unsigned long": ctypes.c_uint64, "unsigned long long": ctypes.c_uint64,
    "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_uint64,
    "float": ctypes.c_float, "double": ctypes.c_double,
}  # fmt: skip


class ExecutionConfiguration(NamedTuple):
    """Blocks of the grid and threads of a block along x, y and z; bytes of dynamic shared memory."""

    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0

    @property
    def threads(self) -> int:
        """Of one block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def pragma(self) -> str:
        """The line that says it."""
        grid, block = (", ".join(map(str, three)) for three in (self.grid, self.block))
        return f"#pragma launch grid({grid}) block({block}) shared({self.shared})"

    def updated(self, update: Mapping[str, object]) -> ExecutionConfiguration:
        """With what a launch update says: `grid` and `block` as mappings of axes or lists, `grid_x` and
        the like, `shared`. Raises ConfigError for a value that is no positive number."""
        parts = {"grid": list(self.grid), "block": list(self.block)}
        for name, three in parts.items():
            said = update.get(name)
            if isinstance(said, Mapping):
                given = {axis: said[axis] for axis in _AXES if axis in said}
            elif isinstance(said, (list, tuple)):
                given = dict(zip(_AXES, said, strict=False))
            else:
                given = {axis: said} if (axis := "x") and said is not None else {}
            given |= {
                axis: update[f"{name}_{axis}"] for axis in _AXES if f"{name}_{axis}" in update
            }
            for axis, value in given.items():
                three[_AXES.index(axis)] = _positive(f"{name}.{axis}", value)
        shared = update.get("shared", update.get("shared_mem", self.shared))
        return ExecutionConfiguration(
            _three(parts["grid"]), _three(parts["block"]), _positive("shared", shared, least=0)
        )


class Parameter(NamedTuple):
    """A kernel's parameter: its C type without qualifiers, and whether it is a pointer."""

    name: str
    type: str
    pointer: bool
    constant: bool


class Signature(NamedTuple):
    """A kernel as its source declares it; of a template its parameters' names, and the `arguments` that it is
    instantiated for."""

    name: str
    parameters: tuple[Parameter, ...]
    template: tuple[str, ...] = ()
    arguments: str = ""

    @property
    def instance(self) -> str:
        """`name`, of a template `name<arguments>`. Raises ConfigError where nobody says which."""
        if self.template and not self.arguments:
            raise ConfigError(
                f"{self.name} is a template and not read: hints and knobs only, for one instance; name the "
                f"kernel with its arguments, as in {self.name}<{', '.join(self.template)}>"
            )
        return f"{self.name}<{self.arguments}>" if self.template else self.name


def launch_of(source: str) -> ExecutionConfiguration:
    """The launch that a source states. Raises ConfigError where it has none, or one that is no launch."""
    found = _PRAGMA.search(source)
    if found is None:
        raise ConfigError("the source has no line `#pragma launch grid(x, y, z) block(x, y, z)`")
    grid, block = (
        [_positive("#pragma launch", number) for number in text.split(",")]
        for text in found.groups()[:2]
    )
    return ExecutionConfiguration(
        _three(grid), _three(block), _positive("shared", found[3] or 0, least=0)
    )


def with_launch(source: str, launch: ExecutionConfiguration) -> str:
    """The source with this launch in the place of its own, or above everything else."""
    if _PRAGMA.search(source) is None:
        return f"{launch.pragma}\n{source}"
    return _PRAGMA.sub(lambda _: launch.pragma, source, count=1)


def compilable(source: str, name: str = "") -> str:
    """What a compiler sees: an empty line in the place of the launch, and below the source the instance of
    a template that `name` (`f<256>`) asks for."""
    instance = f"\ntemplate __global__ decltype({name}) {name};\n" if "<" in name else ""
    return _PRAGMA.sub("", source) + instance


def signature_of(source: str, name: str = "") -> Signature:
    """The kernel called `name`, or the only one; of a template perhaps an instance, `f<256>`. Raises
    ConfigError where there is none, or several."""
    text = _COMMENTS.sub(" ", source)
    name, _, given = name.strip().rstrip(">").partition("<")
    kernels = list(_kernels(text, given))
    chosen = [kernel for kernel in kernels if kernel.name == name] if name else kernels
    if len(chosen) == 1:
        return chosen[0]
    there = ", ".join(kernel.name for kernel in kernels) or "none"
    wanted = f"a kernel called {name}" if name else "one kernel"
    raise ConfigError(
        f"the source should define {wanted}; of __global__ functions there are {there}"
    )


def scalar_type(parameter: Parameter) -> type[Number]:
    """The C type with which a number is passed. Raises ConfigError for a type that is none of C's."""
    if parameter.type not in _SCALARS:
        raise ConfigError(
            f"parameter {parameter.name} has type {parameter.type}; numbers are passed as "
            "integers, float, double or bool"
        )
    return _SCALARS[parameter.type]


def _kernels(text: str, given: str) -> list[Signature]:
    """The kernels of a text; `given` are the arguments of those that are templates."""
    found = []
    for match in re.finditer(r"\b__global__\b", text):
        rest = text[match.end() :]
        head = re.match(
            r"\s*(?:(?:static|inline)\s+)*(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+"
            r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)",
            rest,
        )
        if head is None:
            continue
        names = _template(text[: match.start()])
        values = dict(zip(names, map(str.strip, given.split(",")), strict=False))
        words = re.split(r"(\w+)", head[2])
        types = "".join(values.get(word, word) for word in words)
        parameters = tuple(
            _parameter(part) for part in types.split(",") if part.strip() not in ("", "void")
        )
        found.append(Signature(head[1], parameters, tuple(names), given.strip()))
    return found


def _template(before: str) -> list[str]:
    """The names of the template's parameters that end the text before a kernel's head; none of another."""
    head = re.search(r"\btemplate\s*<([^;{}]*)>\s*(?:static\s+|inline\s+)*$", before)
    parts = head[1].split(",") if head else []
    return [part.partition("=")[0].split()[-1] for part in parts if part.strip()]


def _parameter(text: str) -> Parameter:
    bare = re.sub(r"\b(__restrict__|restrict|volatile|__grid_constant__)\b", " ", text)
    bare = bare.partition("=")[0]
    pointer = "*" in bare or "[" in bare
    words = re.sub(r"[*&]|\[.*?\]", " ", bare).split()
    constant = "const" in words
    words = [word for word in words if word != "const"]
    return Parameter(words[-1] if words else "", " ".join(words[:-1]), pointer, constant)


def _positive(name: str, value: object, least: int = 1) -> int:
    try:
        number = int(str(value))
    except ValueError:
        number = least - 1
    if number < least:
        raise ConfigError(f"{name} is {value}, not a whole number of {least} or more")
    return number


def _three(numbers: list[int]) -> tuple[int, int, int]:
    x, y, z = (*numbers, 1, 1, 1)[:3]
    return x, y, z
