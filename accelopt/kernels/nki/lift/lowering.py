"""From an algorithm and a schedule to NKI source, as an expert would write it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from accelopt.hardware import TARGETS
from accelopt.kernels.nki.lift.algorithm import Algorithm
from accelopt.kernels.nki.lift.emission.blocks import RowBlock
from accelopt.kernels.nki.lift.emission.flattening import flattened
from accelopt.kernels.nki.lift.emission.graph import Graph
from accelopt.kernels.nki.lift.emission.nest import Price, price, rendered
from accelopt.kernels.nki.lift.emission.reading import graph_of
from accelopt.kernels.nki.lift.emission.text import wrapped
from accelopt.kernels.nki.lift.schedule import Schedule

HEADER = """import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
"""


class Lowered(NamedTuple):
    """A kernel's source, and what it costs in closed form."""

    source: str
    price: Price


def lower(
    algorithm: Algorithm | Graph,
    schedule: Schedule,
    parameters: Sequence[str] = (),
    target: str = "trn1",
) -> Lowered:
    """The kernel that computes `algorithm` as `schedule` says. `parameters` are the kernel's
    parameters in order, where there are others than the algorithm's inputs. Raises NotLowered for
    an algorithm or a schedule that has no such kernel, ResourceShort for one that the hardware
    cannot hold."""
    graph = algorithm if isinstance(algorithm, Graph) else graph_of(algorithm)
    if schedule.flat:
        graph = flattened(graph, schedule.flat)
    block = RowBlock(graph, schedule, TARGETS[target])
    nodes = block.emit()
    head = HEADER + ("import numpy as np\n" if block.identity else "")
    lines = [head, "", "@nki.jit", f"def kernel({', '.join(parameters or graph.inputs)}):"]
    lines += [f'    """{_title(graph)}"""']
    lines += [text for line in rendered(nodes) for text in wrapped(line)]
    results = [graph.arrays[name].name for name in graph.results]
    lines.append(f"    return {', '.join(results)}")
    return Lowered("\n".join(lines) + "\n", price(nodes, TARGETS[target]))


def _title(graph: Graph) -> str:
    shapes = ", ".join(f"{n} {_shape(graph.arrays[n].given)}" for n in graph.inputs)
    results = ", ".join(f"{n} {_shape(graph.arrays[n].given)}" for n in graph.results)
    text = f"{shapes} -> {results}."
    return text if len(text) <= 90 else f"{', '.join(graph.inputs)} -> {', '.join(graph.results)}."


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
