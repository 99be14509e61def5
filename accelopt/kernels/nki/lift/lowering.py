"""From an algorithm and a schedule to NKI source, as an expert would write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accelopt.algorithm.algorithm import Algorithm, Array
from accelopt.hardware import TARGETS, Hardware
from accelopt.kernels.nki.lift.emission.blocks import RowBlock
from accelopt.kernels.nki.lift.emission.flattening import flattened
from accelopt.kernels.nki.lift.emission.graph import Graph
from accelopt.kernels.nki.lift.emission.nest import NestNode, Price, price, rendered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.emission.text import wrapped
from accelopt.kernels.nki.lift.schedule import ResourceShort, Schedule

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
"""


class Interface(NamedTuple):
    """How a kernel is called: its parameters as text, those of them that are plain numbers (by the
    number that stands for each in the algorithm), whether it returns a tuple of one, its name, and
    what it `asserts` of plain arguments."""

    signature: str = ""
    numbers: Mapping[float, str] = {}
    sequence: bool = False
    name: str = "kernel"
    asserts: tuple[str, ...] = ()


class Lowered(NamedTuple):
    """A kernel's source, and what it costs in closed form."""

    source: str
    price: Price


def lower(
    algorithm: Algorithm | Graph,
    schedule: Schedule,
    interface: Interface = Interface(),  # noqa: B008  (immutable)
    target: str = "trn1",
) -> Lowered:
    """The kernel that computes `algorithm` as `schedule` says. `interface` is how the
    kernel is called, where that is not with the algorithm's inputs alone. Raises NotLowered for
    an algorithm or a schedule that has no such kernel, ResourceShort for one that the hardware
    cannot hold."""
    graph = algorithm if isinstance(algorithm, Graph) else graph_of(algorithm)
    if schedule.flat:
        graph = flattened(graph, schedule.flat)
    nodes = _emitted(graph, schedule, TARGETS[target], interface.numbers)
    lines = [
        HEADER.rstrip(),
        "",
        "",
        "@nki.jit",
        f"def {interface.name}({interface.signature or ', '.join(graph.inputs)}):",
    ]
    arrays = graph.arrays
    said = title([arrays[n] for n in graph.inputs], [arrays[n] for n in graph.results])
    lines += [f'    """{said}"""']
    body = [*(f"    {text}" for text in interface.asserts), *rendered(nodes)]
    lines += [text for line in body for text in wrapped(line)]
    results = [graph.arrays[name].name for name in graph.results]
    comma = "," if interface.sequence and len(results) == 1 else ""
    lines.append(f"    return {', '.join(results)}{comma}")
    return Lowered("\n".join(lines) + "\n", price(nodes, TARGETS[target]))


def _emitted(
    graph: Graph, schedule: Schedule, spec: Hardware, numbers: Mapping[float, str]
) -> list[NestNode]:
    """The kernel's statements. What is loaded is written over only where the next block of rows
    would have no room beside it: a load can begin once nobody reads what lies there."""
    fresh = RowBlock(graph, schedule, spec, numbers)
    try:
        nodes = fresh.emit()
    except ResourceShort:
        fresh.room = False
    return nodes if fresh.room else RowBlock(graph, schedule, spec, numbers, overwrite=True).emit()


def title(inputs: Sequence[Array], results: Sequence[Array]) -> str:
    """What a kernel takes and gives, for its docstring."""
    given = ", ".join(f"{a.name} {shape_text(a.given)}" for a in inputs)
    made = ", ".join(f"{a.name} {shape_text(a.given)}" for a in results)
    text = f"{given} -> {made}."
    if len(text) <= 90:
        return text
    return f"{', '.join(a.name for a in inputs)} -> {', '.join(a.name for a in results)}."


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape, as Python writes it."""
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
