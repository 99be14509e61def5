"""The text of `accelopt explain`: what a kernel computes, and how, for a reader who knows neither
the kernel nor this package."""

from __future__ import annotations

import math
import textwrap
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from accelopt.algorithm.contraction import contraction
from accelopt.algorithm.ir import Algorithm, Array, Definition, Reduce
from accelopt.algorithm.notation import array_text, axes_text, definition_text
from accelopt.algorithm.traced_array import NotTraced
from accelopt.hardware.gpus import GPU
from accelopt.kernels.gpu.bench.files.tracefiles import Solution
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.kernels.nki.lift.loop_axes import Walk, blocks_kept, loops_around_uses, walks
from accelopt.kernels.nki.problem_bound import problem_bound
from accelopt.kernels.nki.rescheduling.liftable_statements import pieces
from accelopt.kernels.nki.source_lines import Sources
from accelopt.kernels.triton.lift.problem import LiftedProblem
from accelopt.sim.affine import LoopVariable
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Buffer, Instruction, Loop, Program, ProgramNode, core_of
from accelopt.sim.timing import KernelProfile

WIDTH = 80
MOST_LINES = 70
"""Of the loops; unrolled kernels have thousands."""
MOST_TILES = 10
MOST_ALIKE = 16
"""Places of one instruction, among what is written out, at which a round may begin again."""
KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20


def problem_text(found: KernelProfile) -> str:
    """The algorithm, the loops and tiles, what stays on chip, what is read again, and the limits."""
    program = found.run.program
    sources = Sources()
    algorithm: Algorithm | None = None
    steps: Mapping[LoopVariable, Walk] = {}
    try:
        algorithm = lift(program)
        steps = walks(program, algorithm)
        head = _algorithm(algorithm)
    except NotLifted as refusal:
        head = "\n\n".join([_refused(refusal, sources), *_in_pieces(program, sources)])
    parts = [head, _loops(program, steps, sources), _tiles(program, steps, sources),
             _reads(found), _limits(found)]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def solution_text(found: LiftedProblem, least: Bound, target: GPU) -> str:
    """The same of a Triton solution: what it computes, from which lines, whether the reference does,
    and the least time of the problem."""
    if isinstance(found.solution, NotTraced):
        rows = ["What it computes has no closed form that could be found:"]
        parts = ["\n".join([*rows, _wrapped(str(found.solution), "  ", "    ")])]
    else:
        parts = [_algorithm(found.solution.algorithm, found.solution.lines)]
    parts.append(_wrapped(same_text(found), "", "  "))
    parts.append(_wrapped(
        f"No kernel of this problem takes less than {least.milliseconds:.4g} ms on {target.name} "
        f"({least.source}): {_size(least.bytes)} take {least.memory_ms:.4g} ms, "
        f"{least.operations / 1e9:.4g} Gflop take {least.compute_ms:.4g} ms.", "", "  "))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def solution_check_text(solution: Solution, found: LiftedProblem) -> str:
    """The rules on sources that a Triton solution breaks, and whether it is its reference in real numbers."""
    broken = violations(solution)
    passes = (
        "refused"
        if broken
        else "keeps to the rules on sources; a search judges its numbers, on a GPU"
    )
    rows = [f"{solution.name}: {passes}", *map(str, broken), _wrapped(same_text(found), "", "  ")]
    return "\n".join(rows) + "\n"


def same_text(found: LiftedProblem) -> str:
    """Whether a solution is its reference in real numbers, in a sentence."""
    if found.same:
        return (
            "The same in real numbers, as traced: what the kernel computes and what the reference does "
            "have one normal form; rounding is another matter."
        )
    return f"Not known to be the same as the reference in real numbers: {found.unequal}."


def _wrapped(text: str, indent: str, further: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False
    )


# What it computes.


def _algorithm(algorithm: Algorithm, lines: Mapping[str, SourceLine] | None = None) -> str:
    rows = ["What it computes"]
    rows += [f"  given {_array(array)}" for array in algorithm.inputs]
    axes = {a: None for d in algorithm.definitions for a in d.axes}
    for definition in algorithm.definitions:
        if isinstance(definition, Reduce):
            axes.update(dict.fromkeys(definition.reduced))
    rows.append(_wrapped(f"for {axes_text(tuple(axes))}", "  ", "      "))
    for definition in algorithm.definitions:
        rows.append(_wrapped(definition_text(definition), "    ", "        "))
        line = (lines or {}).get(definition.out)
        said = [_nature(definition), "" if line is None else str(line)]
        if any(said):
            rows.append(f"        # {', '.join(filter(None, said))}")
    rows += [f"  returns {_array(array)}" for array in algorithm.outputs]
    return "\n".join(rows)


def _array(array: Array) -> str:
    text = array_text(array)
    if array.shape == array.given:
        return text
    return f"{text} (in the kernel {' x '.join(map(str, array.given)) or 'one element'})"


def _nature(definition: Definition) -> str:
    """What a reader should know of a definition, in words."""
    product = contraction(definition) if isinstance(definition, Reduce) else None
    if product is None:
        return ""
    rows, columns, depth = (
        math.prod(axis.extent for axis in axes)
        for axes in (product.rows, product.columns, product.contracted)
    )
    batch = math.prod(axis.extent for axis in product.batch)
    times = f"{batch} times " if batch > 1 else ""
    return (f"matrix product, {times}{rows} x {depth} by {depth} x {columns}: "
            f"{product.flops / 1e9:.4g} Gflop")  # fmt: skip


def _refused(refusal: NotLifted, sources: Sources) -> str:
    rows = ["What it computes has no closed form that could be found:"]
    rows.append(_wrapped(f"line {refusal.source.line}: {refusal.reason}", "  ", "    "))
    if text := sources.text(refusal.source, WIDTH - 6):
        rows.append(f"    {text}")
    return "\n".join(rows)


def _in_pieces(program: Program, sources: Sources) -> list[str]:
    """What the parts of a kernel compute that lift by themselves, and what its others take and give."""
    try:
        found = pieces(program, sources.whole(program.source))
    except NotLifted:
        return []
    rows = [_algorithm(piece.algorithm).replace("it computes", "a part of it computes", 1)
            for piece in found.lifted]  # fmt: skip
    for one in found.opaque:
        said = (
            f"What stands around line {one.source.line} makes {', '.join(one.outputs) or 'nothing'}"
        )
        rows.append(_wrapped(f"{said} of {', '.join(one.inputs) or 'nothing'}.", "", "  "))
    return rows


# How it goes about it.


def _loops(program: Program, steps: Mapping[LoopVariable, Walk], sources: Sources) -> str:
    cores = sorted({instruction.core for _, instruction in program.walk()})
    rows: list[str] = []
    for core in cores:
        nodes = tuple(node for node in program.body if core_of(node) == core)
        rows += [f"  core {core}:"] * (len(cores) > 1)
        rows += _rows(_steps(nodes, steps, sources), len(cores))
    if len(rows) > MOST_LINES:
        left = len(rows) - MOST_LINES
        rows = [*rows[:MOST_LINES], f"  ... and {left} lines more"]
    return "\n".join(["How it goes about it", *rows])


class _Step(NamedTuple):
    """An instruction, or a loop with what is in it."""

    text: str
    line: int
    inner: tuple[_Step, ...] = ()


def _steps(
    nodes: tuple[ProgramNode, ...], walked: Mapping[LoopVariable, Walk], sources: Sources
) -> list[_Step]:
    return _folded([
        _Step(_loop(node, walked), node.source.line, tuple(_steps(node.body, walked, sources)))
        if isinstance(node, Loop)
        else _Step(_instruction(node, sources), node.source.line)
        for node in nodes
    ])  # fmt: skip


def _folded(steps: list[_Step]) -> list[_Step]:
    """The steps, what is repeated in a row once: rounds of Python's loops, written out."""
    places: dict[_Step, list[int]] = defaultdict(list)
    for at, step in enumerate(steps):
        places[step].append(at)
    found: list[_Step] = []
    at = 0
    while at < len(steps):
        length, times = 1, 1
        alike = places[steps[at]]
        first = bisect_right(alike, at)
        for other in alike[first : first + MOST_ALIKE]:
            size, n = other - at, 1
            while steps[at + n * size : at + (n + 1) * size] == steps[at:other]:
                n += 1
            if n > 1 and n * size > length * times:
                length, times = size, n
        block = steps[at : at + length]
        if times > 1:
            head = f"{times} times, written out:"
            block = [_Step(head, block[0].line, tuple(_folded(block)))]
        found += block
        at += length * times
    return found


def _rows(steps: Sequence[_Step], depth: int) -> Iterator[str]:
    for text, line, inner in steps:
        indent, place = "  " * min(depth, 12), f"line {line}"
        space = WIDTH - len(indent) - len(place) - 1
        short = text if len(text) <= space else text[: space - 3] + "..."
        yield f"{indent}{short:<{space}} {place}"
        yield from _rows(inner, depth + 1)


def _loop(loop: Loop, steps: Mapping[LoopVariable, Walk]) -> str:
    trips = loop.variable.trips
    walked = steps.get(loop.variable)
    if walked is None:
        return f"{trips} times:"
    if walked.step == 1:
        return f"for each of {trips} {walked.axis.name}:"
    return f"for {walked.axis.name} in {trips} steps of {walked.step}:"


def _instruction(node: Instruction, sources: Sources) -> str:
    result = node.outputs.get("result")
    if result is None:
        return node.opcode.replace("_", " ")
    shape = " x ".join(str(n) for n in result.shape)
    name = sources.name(result.tensor.name, result.tensor.source)
    if node.opcode.transfers:
        source = node.inputs["source"]
        if not source.tensor.buffer.on_chip:
            name = sources.name(source.tensor.name, source.tensor.source)
            return f"load {shape} of {name} ({_size(result.bytes)})"
        return f"store {shape} to {name} ({_size(result.bytes)})"
    if node.opcode.product:
        return _matmul(node, name)
    operations = [str(node.attributes[k]) for k in ("op", "op0", "op1") if node.attributes.get(k)]
    verb = ", ".join(operations) or node.opcode.verb or node.opcode.replace("_", " ")
    if node.opcode.verb and operations:
        verb = f"{node.opcode.verb} by {verb}"
    data = node.inputs.get("data")
    if data is not None and "axes" in node.attributes:
        shape = " x ".join(str(n) for n in data.shape)
    return f"{name} = {verb}, {shape} ({node.engine.value} engine)".replace(
        "unassigned engine", "any engine"
    )


def _matmul(node: Instruction, name: str) -> str:
    stationary, moving = node.inputs["stationary"].shape, node.inputs["moving"].shape
    rows, columns = math.prod(stationary[1:]), math.prod(moving[1:])
    if node.attributes.get("is_transpose"):
        return f"{name} = transposed, {stationary[0]} x {rows} (tensor engine)"
    sign = "+=" if node.attributes.get("accumulate") else "="
    return f"{name} {sign} {rows} x {stationary[0]} by {stationary[0]} x {columns} (tensor engine)"


def _size(count: float) -> str:
    if count >= MEBIBYTE:
        return f"{count / MEBIBYTE:.4g} MiB"
    return f"{count / KIBIBYTE:.4g} KiB" if count >= KIBIBYTE else f"{count:.0f} B"


# What lies where.


def _tiles(program: Program, steps: Mapping[LoopVariable, Walk], sources: Sources) -> str:
    around, kept = loops_around_uses(program), blocks_kept(program)
    sizes = {
        t: kept[t] * math.prod(t.tile_shape[1:]) * t.dtype.itemsize
        for t in around
        if t.buffer in (Buffer.SBUF, Buffer.PSUM)
    }
    if not sizes:
        return ""
    rows: Counter[tuple[str, str, str]] = Counter()
    for tensor in sorted(sizes, key=lambda tensor: -sizes[tensor]):
        name = f"{sources.name(tensor.name, tensor.source)} (line {tensor.source.line})"
        where = "PSUM" if tensor.buffer is Buffer.PSUM else "SBUF"
        loops = around[tensor]
        time = "the whole kernel"
        if loops:
            walked = steps.get(loops[-1].variable)
            time = f"one step of {walked.axis.name}" if walked else "one iteration"
            time += f" (line {loops[-1].source.line})"
        rows[name, f"{where}  {_size(sizes[tensor]):>11s}", time] += 1
    told = [
        f"  {f'{n} times ' * (n > 1) + name:31.31s} {size}  {time}"
        for (name, size, time), n in [*rows.items()][:MOST_TILES]
    ]
    return "\n".join(
        ["What lies on chip, largest first        a partition  for the time of", *told]
    )


def _reads(found: KernelProfile) -> str:
    again = [one for one in found.reads if one.times > 1.005]
    unread = [one.tensor for one in found.reads if not one.read]
    none = [_wrapped(f"Nothing is read of {', '.join(unread)}.", "", "  ")] if unread else []
    if not again:
        return "\n".join([*none, "No input is read more than once."])
    rows = ["Inputs that are read again                     size         read   times"]
    for one in again:
        size, read = _size(one.size), _size(one.read)
        rows.append(f"  {one.tensor:36.36s} {size:>12s} {read:>12s} {one.times:7.3g}")
    return "\n".join(rows + none)


def _limits(found: KernelProfile) -> str:
    bound = problem_bound(found.run.program, found.run.spec)
    rows = [
        f"What it takes: {found.latency_ms:.4g} ms, {found.simulated_on}.",
        _wrapped(bound.sentence(found.latency_ms, found.run.stream.cores), "", "  "),
        "Of the time, by single aspects:",
    ]
    for one in sorted(found.bounds, key=lambda one: -one.ms)[:6]:
        text = f"{one.ms:9.4g} ms  {one.ms / found.latency_ms:4.0%}  {one.name}: {one.meaning}"
        rows.append(_wrapped(text, "  ", " " * 22))
    rows += [
        _wrapped(
            f"{one.tensor} does not stay in SBUF: "
            f"{_size(one.saved + one.reloaded + one.loaded_again)} are moved again for it.",
            "  ", "    ",
        )
        for one in found.spills[:5]
    ]  # fmt: skip
    return "\n".join(rows)
