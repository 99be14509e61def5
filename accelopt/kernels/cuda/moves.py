"""What can be done to the text of a CUDA kernel by rule, and by name what only a model can do.

Rules read one kernel of plain C: they count on nothing that the text does not show, and the referee
judges what comes of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from types import MappingProxyType

from accelopt.errors import ConfigError
from accelopt.kernels.cuda.launching import (
    launch_of,
    signature_of,
    with_launch,
)
from accelopt.kernels.cuda.programs.program import Team
from accelopt.kernels.cuda.programs.shaping import (
    MULTIPROCESSORS,
    Values,
    block_reductions,
    kept_rows,
    matrix_instructions,
    read_programs,
    row_teams,
    shared_tiles,
    transposed_tiles,
    vector_loads,
)
from accelopt.kernels.cuda.programs.syntax import assigned, names, parsed, said, walk
from accelopt.kernels.moves import METHODS
from accelopt.nodes import Action, Node, Rewrite, made

BLOCKS = (128, 256, 512, 1024, 64)
FACTORS = (4, 8, 2)
WALKS = (8, 16, 4, 32)
ANOTHER_SHAPE = 0.15  # promised of the first other shape of a kernel that a rule wrote
_WRITTEN = re.compile(r"[A-Za-z0-9]_\b")  # by a rule: names with an underscore behind
_CONSTANT = re.compile(r"#\s*define\s+(\w+)|\bconstexpr\s[\w\s]*?(\w+)\s*=")
SHAPES = frozenset(
    {"switch_to_mma_or_wgmma", "share_tiles", "turn_tiles", "vectorize_global_loads",
     "avoid_atomics_reduce", "team_a_row", "read_row_once"}
)  # fmt: skip
"""Methods whose rules write a kernel anew, in a shape that they choose among several."""


def block_sizes(source: str, name: str, values: Values) -> Iterator[Action]:
    """Give the blocks another number of threads, and the grid as many blocks as cover the same work.

    Legal where the kernel asks for its block's size wherever it counts on it, no `__launch_bounds__`
    says it, no warp works together, and its threads work for the grid, for rows of a block, or for rows
    of their own.
    """
    launch = launch_of(source)
    if launch.block[1:] != (1, 1) or "__launch_bounds__" in source or "__shfl" in source:
        return
    program = next(iter(read_programs(source, name)), None)
    if program is None or not _asks_for_size(source, launch.block[0]):
        return
    for place, threads in enumerate(BLOCKS):
        if threads == launch.block[0]:
            continue
        grid = launch.grid
        if program.team is not Team.BLOCK:
            grid = (-(-launch.grid[0] * launch.block[0] // threads), *launch.grid[1:])
        changed = launch._replace(block=(threads, 1, 1), grid=grid)
        text = _sized(with_launch(source, changed), launch.block[0], threads)
        yield _made(
            "change_block_sizes", {"threads": threads}, f"Use {threads} threads a block.", text,
            promise=0.04 * 0.8**place,
        )  # fmt: skip


def walking_grid(source: str, name: str, values: Values) -> Iterator[Action]:
    """Start only as many blocks as run at once and let them walk over the work.

    Legal where the kernel's loops step by the whole grid (`gridDim.x`) and nothing else knows it.
    """
    launch = launch_of(source)
    programs = [one for one in read_programs(source, name) if one.team is Team.GRID]
    if not programs or not re.search(r"gridDim\s*\.\s*x", source):
        return
    for place, waves in enumerate(WALKS):
        blocks = MULTIPROCESSORS * waves
        if blocks < launch.grid[0]:
            changed = launch._replace(grid=(blocks, *launch.grid[1:]))
            yield _made(
                "walking_grid", {"blocks": blocks}, f"Start {blocks} blocks that walk.",
                with_launch(source, changed), promise=0.05 * 0.8**place,
            )  # fmt: skip


def launch_bounds(source: str, name: str, values: Values) -> Iterator[Action]:
    """Tell the compiler how many threads a block has, so that it may use the registers they leave.

    What a rule wrote says it where it takes many registers.
    """
    launch, kernel = launch_of(source), signature_of(source, name)
    if "__launch_bounds__" in source or _is_written(source):
        return
    text, count = re.subn(
        rf"(\b__global__\s+)(void\s+{kernel.name}\s*\()",
        rf"\1__launch_bounds__({launch.threads}) \2",
        source,
    )
    if count == 1:
        yield _made(
            "launch_bounds", {}, f"Declare blocks of {launch.threads} threads.", text, promise=0.02
        )


def read_only_pointers(source: str, name: str, values: Values) -> Iterator[Action]:
    """Declare that pointers do not overlap and that inputs are only read, so that loads may be moved
    and go by the read-only path.

    Legal where no argument is another's memory: the referee's tensors are apart.
    """
    kernel = signature_of(source, name)
    wanted = [p for p in kernel.parameters if p.pointer]
    text = source
    for parameter in wanted:
        text = re.sub(
            rf"\*\s*(?:__restrict__\s+)?\b{re.escape(parameter.name)}\b(?=\s*[,)])",
            f"* __restrict__ {parameter.name}",
            text,
            count=1,
        )
    if text != source and "__restrict__" not in source:
        yield _made(
            "read_only_pointers",
            {},
            "Declare that the pointers do not overlap.",
            text,
            promise=0.05,
        )


def unrolled_loops(source: str, name: str, values: Values) -> Iterator[Action]:
    """Unroll loops so that the loads of several steps are under way together.

    Left as they are: loops that wait at a barrier, loops whose count the compiler knows, and what rules
    wrote, where unrolling brought nothing on any kernel that was timed (`experiments/spec_kernels/`).
    """
    for number, place in enumerate(_loops(source)[:4]):
        before, behind = source[:place], source[place:]
        indent = before.rpartition("\n")[2]
        for factor in FACTORS:
            text = f"{before}#pragma unroll {factor}\n{indent}{behind}"
            yield _made(
                "unroll_loops", {"loop": number, "factor": factor},
                f"Unroll loop {number + 1} {factor} times.", text, promise=0.04,
            )  # fmt: skip


def streaming_accesses(source: str, name: str, values: Values) -> Iterator[Action]:
    """Read inputs and write outputs past the caches where each is touched once.

    Legal for plain subscripts of a kernel's pointers: `x[i]` becomes `__ldcs(&x[i])`. What a rule wrote is
    left as it is: it has subscripts only where few elements go.
    """
    kernel = signature_of(source, name)
    if "__ldcs" in source or "__stcs" in source or _is_written(source):
        return
    text = source
    for parameter in kernel.parameters:
        if parameter.pointer and parameter.name.isidentifier():
            text = _streamed(text, parameter.name, reads=parameter.constant)
    if text != source:
        yield _made(
            "cache_policy_cg", {}, "Stream inputs and outputs past the caches.", text, promise=0.03
        )


RULES: tuple[Callable[[str, str, Values], Iterator[Action]], ...] = (
    matrix_instructions, shared_tiles, transposed_tiles, vector_loads, block_reductions, row_teams, kept_rows,
    block_sizes, walking_grid, read_only_pointers, unrolled_loops, streaming_accesses, launch_bounds,
)  # fmt: skip


def proposals(
    source: str, name: str, most: int, values: Values = MappingProxyType({})
) -> list[Action]:
    """What the rules can make of a kernel, the most promising first; none of a source that they
    cannot read. `values` are whole numbers of the contract, by the kernel's parameters."""
    found: list[Action] = []
    for rule in RULES:
        try:
            found += rule(source, name, values)
        except ConfigError:
            continue
    distinct = {action.key: action for action in reversed(found)}
    return sorted(distinct.values(), key=lambda action: -action.promise)[:most]


def proposals_on(
    node: Node, name: str, most: int, values: Values = MappingProxyType({})
) -> list[Action]:
    """What the rules can make of a kernel of a search: `proposals`, and where a rule wrote it, what else
    the same rule makes of the kernel that it began with. Such other shapes are promised more than hints."""
    found = proposals(node.source, name, most, values)
    method, origin = _method(node), node
    while origin.parent is not None and method in SHAPES and _method(origin) == method:
        origin = origin.parent
    if origin is not node:
        shapes = [
            one for one in proposals(origin.source, name, most, values) if one.method == method
        ]
        found += [
            one.model_copy(update={"promise": ANOTHER_SHAPE * 0.97**place})
            for place, one in enumerate(shapes)
        ]
    return sorted(found, key=lambda action: -action.promise)[:most]


def _method(node: Node) -> str:
    """By which rule a kernel was made of its parent; empty where it was by none."""
    return node.change.move if isinstance(node.change, Rewrite) else ""


def _made(
    method: str, parameters: dict[str, int], sentence: str, text: str, *, promise: float
) -> Action:
    change = Rewrite(move=method, parameters=dict(parameters), sentence=sentence)
    return made(change, text, promise=promise, touches=METHODS[method].touches)


def _is_written(source: str) -> bool:
    """Whether a rule wrote the kernel anew."""
    return _WRITTEN.search(source.partition("__global__")[2]) is not None


def _loops(source: str) -> list[int]:
    """Where loops begin that may gain from being unrolled, each on a line of its own."""
    if _is_written(source):
        return []
    constants = {name for found in _CONSTANT.findall(source) for name in found}
    places = []
    for loop in walk(parsed(source)):
        if loop.type != "for_statement" or "__sync" in said(loop):
            continue
        parts = (loop.child_by_field_name(part) for part in ("initializer", "condition", "update"))
        start, bound, update = (
            part or loop for part in parts
        )  # without a part it may be any count
        counted = names(start) | names(bound) <= assigned(update) | constants
        before = source.encode()[: loop.start_byte].decode()
        above, _, indent = before.rpartition("\n")
        told = above.rstrip().rpartition("\n")[2].strip().startswith("#pragma")
        if not (counted or told or indent.strip()):
            places.append(len(before))
    return places


def _asks_for_size(source: str, threads: int) -> bool:
    """Whether `blockDim.x` stands in a kernel and its number only as a shared array's length."""
    body = source.partition("__global__")[2]
    unsized = re.sub(rf"(__shared__[^;]*\[\s*){threads}(\s*\])", r"\1\2", body)
    numbers = {str(threads), str(threads // 2), str(threads - 1)}
    shared = re.findall(r"__shared__[^;]*\[\s*([^\]\s]+)\s*\]", unsized)
    defined = re.search(r"#\s*define|constexpr|extern\s+__shared__", source)
    plain = not defined and not shared and not numbers & set(re.findall(r"\b\d+\b", unsized))
    return plain and re.search(r"blockDim\s*\.\s*x", body) is not None


def _sized(source: str, before: int, now: int) -> str:
    """Shared arrays of as many elements as a block had threads, or a warp's worth of them, keep pace."""
    return re.sub(
        rf"(__shared__[^;\[]*\[\s*){before}(\s*\])", lambda m: f"{m[1]}{now}{m[2]}", source
    )


def _streamed(text: str, name: str, *, reads: bool) -> str:
    """Subscripts of `name` after the kernel's head: read by `__ldcs`, or, as a statement, written by
    `__stcs`."""
    head = re.search(r"\b__global__\b[^{]*\{", text)
    if head is None:
        return text
    body = text[head.end() :]
    if reads:
        pattern = rf"(?<![\w.&>])\b{name}\[((?:[^\[\]]|\[[^\[\]]*\])*)\](?!\s*=[^=])"
        body = re.sub(pattern, rf"__ldcs(&{name}[\1])", body)
    else:
        pattern = rf"(?<![\w.&>])\b{name}\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\s*=(?!=)\s*([^;]+);"
        body = re.sub(pattern, rf"__stcs(&{name}[\1], \2);", body)
    return text[: head.end()] + body
