"""From a nest to the source of a kernel, in either dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping

from accelopt.algorithm.algorithm import Algorithm, Array
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.lift.emission.nest import Price, price, rendered
from accelopt.kernels.nki.lift.emission.text import wrapped
from accelopt.kernels.nki.lift.lowering import Interface, Lowered, shape_text, title
from accelopt.kernels.nki.nests.emission import Emitter
from accelopt.kernels.nki.nests.nest import Nest
from accelopt.kernels.nki.nests.nest import ready as readied
from accelopt.sim.dialects.dialect import Dialect

HEADERS: Mapping[Dialect, str] = {
    "neuronxcc": "import neuronxcc.nki as nki\nimport neuronxcc.nki.isa as nisa\n"
    "import neuronxcc.nki.language as nl",
    "nki": "import nki\nimport nki.isa as nisa\nimport nki.language as nl",
}


def lower_nest(
    algorithm: Algorithm,
    nest: Nest,
    interface: Interface = Interface(),  # noqa: B008  (immutable)
    target: str = "trn1",
    dialect: Dialect = "neuronxcc",
) -> Lowered:
    """The kernel that computes `algorithm` as a nest of it says. Raises NotNested for a nest that has
    no such kernel, with the definition that is in the way and why."""
    ready = readied(algorithm, nest)
    names = [array.name for array in (*ready.inputs, *ready.outputs)]
    signature = interface.signature or ", ".join(array.name for array in ready.inputs)
    taken = {*names, *re.findall(r"[A-Za-z_]\w*", signature)}
    emitter = Emitter(ready, nest, TARGETS[target], dialect, interface.numbers, taken)
    nodes = emitter.emit()
    lines = [
        HEADERS[dialect],
        "",
        "",
        "@nki.jit",
        f"def {interface.name}({signature}):",
        f'    """{title(ready.inputs, ready.outputs)}"""',
    ]
    body = [f"    {text}" for text in interface.asserts]
    for array in ready.inputs:
        shape = shape_text(array.given)
        said = " x ".join(map(str, array.given))
        body.append(
            f'    assert tuple({array.name}.shape) == {shape}, "{array.name} must be {said}"'
        )
        if array.given != array.shape and array.shape:
            body.append(f"    {array.name} = {array.name}.reshape({shape_text(array.shape)})")
    for array in ready.outputs:
        body += [f"    {line}" for line in _result(array, emitter)]
    body += rendered(nodes)
    lines += [text for line in body for text in wrapped(line)]
    results = [array.name for array in ready.outputs]
    comma = "," if interface.sequence and len(results) == 1 else ""
    lines.append(f"    return {', '.join(results)}{comma}")
    return Lowered("\n".join(lines) + "\n", price(nodes, TARGETS[target]))


def lower_part(
    algorithm: Algorithm, nest: Nest, taken: set[str], target: str, dialect: Dialect
) -> tuple[list[str], Price]:
    """The statements that compute `algorithm` as a nest of it says, from arrays in HBM by its inputs'
    names into those by its outputs' names, and what they cost in closed form. They bind none of the
    names `taken`. Raises NotNested."""
    ready = readied(algorithm, nest)
    taken = taken | {array.name for array in (*ready.inputs, *ready.outputs)}
    emitter = Emitter(ready, nest, TARGETS[target], dialect, {}, taken)
    views: list[str] = []
    for array in (*ready.inputs, *ready.outputs):
        if array.given != (array.shape or (1,)):
            view = emitter.outside[array.name] = emitter.names.new(f"{array.name}_view")
            shape = shape_text(array.shape or (1,))
            views.append(f"{view} = {array.name}.reshape({shape})")
    nodes = emitter.emit()
    lines = [text for line in rendered(nodes) for text in wrapped(line)]
    return [*views, *(line[4:] for line in lines)], price(nodes, TARGETS[target])


def _result(array: Array, emitter: Emitter) -> list[str]:
    """The declaration of a result, and its shape for the nest."""
    shape = shape_text(array.given)
    made = f"{array.name} = nl.ndarray({shape}, dtype=nl.{array.dtype}, buffer=nl.shared_hbm)"
    view = emitter.outside[array.name]
    if view == array.name:
        return [made]
    return [made, f"{view} = {array.name}.reshape({shape_text(array.shape or (1,))})"]
