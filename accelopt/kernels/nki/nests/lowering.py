"""From a nest to the source of a kernel, in either dialect."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from accelopt.algorithm.ir import Algorithm, Array
from accelopt.hardware import TARGETS, Hardware
from accelopt.kernels.nki.nests.emission import CORES, Emitter
from accelopt.kernels.nki.nests.in_place import written_over
from accelopt.kernels.nki.nests.loop_rerolling import folded, rerolled
from accelopt.kernels.nki.nests.nest import (
    Nest,
    NotNested,
    ReadAfterChange,
    TurnedInParts,
    in_terms,
)
from accelopt.kernels.nki.nests.nest import ready as readied
from accelopt.kernels.nki.nests.overlapping import overlapped
from accelopt.kernels.nki.nests.rendering import rendered
from accelopt.kernels.nki.nests.statements import NestNode, Price, price
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.kernels.nki.nests.wrapping import wrapped
from accelopt.parsing import parse_expression, parse_python
from accelopt.sim.dialects.dialect import Dialect

HEADERS: Mapping[Dialect, str] = {
    "neuronxcc": "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\n"
    "import neuronxcc.nki.language as nl",
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl",
}


Made = TypeVar("Made")
FAULTS = (LookupError, ArithmeticError, AssertionError, ValueError, RecursionError)


class Interface(NamedTuple):
    """How a kernel is called: its parameters as text, those of them that are plain numbers (by the
    number that stands for each in the algorithm), whether it returns a tuple of one, its name,
    what it `asserts` of plain arguments, on how many cores it is launched, and whether all bodies are
    `rerolled` that can be, even where the compiler then decides otherwise."""

    signature: str = ""
    numbers: Mapping[float, str] = {}
    sequence: bool = False
    name: str = "kernel"
    asserts: tuple[str, ...] = ()
    cores: int = 1
    rerolled: bool = False


class Lowered(NamedTuple):
    """A kernel's source, and what it costs in closed form."""

    source: str
    price: Price


def lower_nest(
    algorithm: Algorithm,
    nest: Nest,
    interface: Interface = Interface(),  # noqa: B008  (immutable)
    target: str = "trn1",
    dialect: Dialect = "neuronxcc",
) -> Lowered:
    """The kernel that computes `algorithm` as a nest of it says. Raises NotNested for a nest that has
    no such kernel, with the definition that is in the way and why."""
    once, spec = rerolled if interface.rerolled else folded, TARGETS[target]
    emitter, nodes = emitted(
        algorithm, nest, interface, target, dialect,
        lambda e: once(overlapped(e.emit(), e.names, spec), e.names),
    )  # fmt: skip
    return _kernel(emitter, nodes, interface, spec)


def emitted(
    algorithm: Algorithm, nest: Nest, interface: Interface, target: str, dialect: Dialect,
    write: Callable[[Emitter], Made], reader: Callable[[Algorithm, frozenset[str]], Reading] = Reading,
) -> tuple[Emitter, Made]:  # fmt: skip
    """What `write` makes with who writes a nest's statements, and that. Raises NotNested, as `lower_nest`."""
    try:
        try:
            return _emitted(algorithm, nest, interface, target, dialect, write, reader, True)
        except TurnedInParts:
            return _emitted(algorithm, nest, interface, target, dialect, write, reader, False)
    except FAULTS as error:
        raise NotNested(f"lowering itself failed with {type(error).__name__}") from error


def _emitted(
    algorithm: Algorithm, nest: Nest, interface: Interface, target: str, dialect: Dialect,
    write: Callable[[Emitter], Made], reader: Callable[[Algorithm, frozenset[str]], Reading],
    in_parts: bool,
) -> tuple[Emitter, Made]:  # fmt: skip
    ready, nest = in_terms(_complete(algorithm, nest), nest, TARGETS[target])
    if nest.cores and (dialect != "nki" or TARGETS[target].generation < 3):
        raise NotNested(f"{target} has no launch on two cores in {dialect}")
    if dialect != "nki" and (static := [s for s in nest.stages if s.static]):
        raise NotNested(f"{static[0].members[0]} cannot say in {dialect} who makes its descriptors")
    names = [array.name for array in (*ready.inputs, *ready.outputs)]
    signature = interface.signature or ", ".join(array.name for array in ready.inputs)
    taken = {*names, "nt", *re.findall(r"[A-Za-z_]\w*", signature)}
    in_place = written_over(ready, nest)
    while True:
        try:
            emitter = Emitter(
                ready, nest, TARGETS[target], dialect, interface.numbers, {*taken}, in_parts,
                in_place, reader,
            )  # fmt: skip
            return emitter, write(emitter)
        except ReadAfterChange as refusal:
            if not {*refusal.args} & {*in_place.values()}:
                raise NotNested(f"{refusal} is read after it was changed in place") from None
            in_place = {out: name for out, name in in_place.items() if name not in refusal.args}


def _kernel(
    emitter: Emitter, nodes: list[NestNode], interface: Interface, spec: Hardware
) -> Lowered:
    """The text of a kernel of these statements, and what it costs."""
    ready, dialect = emitter.algorithm, emitter.text.dialect
    signature = interface.signature or ", ".join(array.name for array in ready.inputs)
    returned = ready.returned
    named = [emitter.in_place.get(array.name, array.name) for array in returned]
    results = [replace(array, name=name) for array, name in zip(returned, named, strict=True)]
    over = {*emitter.in_place.values()} & {array.name for array in ready.inputs}
    typed = dialect == "neuronxcc" and over
    if typed:
        signature = _mutable(signature, over)
    lines = [
        HEADERS[dialect] + ("\nimport neuronxcc.nki.typing as nt" if typed else ""),
        "",
        "",
        "@nki.jit",
        f"def {interface.name}({signature}):",
        f'    """{title(ready.inputs, results)}"""',
    ]
    body = [f"    {text}" for text in interface.asserts]
    for array in ready.inputs:
        said = " x ".join(map(str, array.given))
        body.append(
            f'    assert tuple({array.name}.shape) == {array.given}, "{array.name} must be {said}"'
        )
    for array in ready.outputs:
        if array.name not in emitter.in_place:
            made = f"nl.ndarray({array.given}, dtype=nl.{array.dtype}, buffer=nl.shared_hbm)"
            body.append(f"    {array.name} = {made}")
    body += rendered(nodes)
    lines += [text for line in body for text in wrapped(line)]
    new = [a.updates for a in ready.outputs if a.updates and a.name not in emitter.in_place]
    if new:
        lines.append(f"    # New arrays: the kernel before changed {', '.join(new)} in place.")
    comma = "," if interface.sequence and len(named) == 1 else ""
    lines.append(f"    return {', '.join(named)}{comma}")
    if emitter.nest.cores:
        lines += ["", "", f"kernel = {interface.name}[{CORES}]"]
    return Lowered("\n".join(lines) + "\n", price(nodes, spec))


def lower_part(
    algorithm: Algorithm, nest: Nest, taken: set[str], target: str, dialect: Dialect,
    in_parts: bool = True,
) -> tuple[list[str], Price]:  # fmt: skip
    """The statements that compute `algorithm` as a nest of it says, from arrays in HBM by its inputs'
    names into those by its outputs' names, and what they cost in closed form. They bind none of the
    names `taken`. Raises NotNested."""
    whole = nest
    ready, nest = in_terms(_complete(algorithm, nest), nest, TARGETS[target])
    names = taken | {array.name for array in (*ready.inputs, *ready.outputs)}
    emitter = Emitter(ready, nest, TARGETS[target], dialect, {}, names, in_parts)
    try:
        nodes = folded(emitter.emit(), emitter.names)
    except TurnedInParts:
        return lower_part(algorithm, whole, taken, target, dialect, in_parts=False)
    lines = [text for line in rendered(nodes) for text in wrapped(line)]
    return [line[4:] for line in lines], price(nodes, TARGETS[target])


def _complete(algorithm: Algorithm, nest: Nest) -> Algorithm:
    """The definitions that the stages of a nest name. Raises NotNested where they are not those of the
    Algorithm, each once."""
    ready = readied(algorithm, nest)
    named = [name for stage in nest.stages for name in stage.members]
    wanted = [definition.out for definition in ready.definitions]
    for name in named:
        if name not in wanted or named.count(name) > 1:
            said = "is in two stages" if name in wanted else "is no definition of this kernel"
            raise NotNested(f"{name} {said}")
    if missing := [name for name in wanted if name not in named]:
        raise NotNested(f"{missing[0]} is in no stage")
    return ready


def _mutable(signature: str, names: set[str]) -> str:
    """Parameters of which those of some names may be written (neuronxcc)."""
    (function,) = parse_python(f"def kernel({signature}): ...").body
    assert isinstance(function, ast.FunctionDef)
    for node in ast.walk(function.args):
        if isinstance(node, ast.arg) and node.arg in names:
            node.annotation = parse_expression("nt.mutable_tensor")
    return ast.unparse(function.args)


def title(inputs: Sequence[Array], results: Sequence[Array]) -> str:
    """What a kernel takes and gives, for its docstring."""
    given = ", ".join(f"{a.name} {a.given}" for a in inputs)
    made = ", ".join(f"{a.name} {a.given}" for a in results)
    text = f"{given} -> {made}."
    if len(text) <= 90:
        return text
    return f"{', '.join(a.name for a in inputs)} -> {', '.join(a.name for a in results)}."
