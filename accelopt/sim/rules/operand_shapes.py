"""How the shapes and formats of one instruction's operands must fit each other.

The tracer makes operands that fit; a Program that came from elsewhere is proven here, so that neither
the executor nor the timing meets shapes that their arithmetic was not made for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from accelopt.sim.access import Access
from accelopt.sim.dtypes import (
    BFLOAT16,
    FLOAT16,
    INT32,
    PACKED,
    UINT16,
    UINT32,
    is_packed,
    name_of,
)
from accelopt.sim.instruction_set import MOVING_SCALES, QUANTIZED_SCALES, STATIONARY_SCALES
from accelopt.sim.microscaling import PACKED as ELEMENTS
from accelopt.sim.microscaling import QUADRANT, SCALES
from accelopt.sim.program import Instruction
from accelopt.sim.rules.limits import FLOATS, QUANTIZED, SCALE_CODES, Formats

Rule = Callable[[Instruction], Iterator[str]]

GATHERING_PARTITIONS = 16  # of one GpSimd core
STATISTICS, GROUP, AGGREGATE, LARGEST = 6, 3, 2, 8
FORMATS: dict[tuple[str, str], Formats] = {
    ("matmul", "stationary"): (*FLOATS, *PACKED),
    ("matmul", "moving"): (*FLOATS, *PACKED),
    ("quantize_mx", "data"): (FLOAT16, BFLOAT16),
    ("quantize_mx", "result"): QUANTIZED,
    **{("matmul", name): SCALE_CODES for name in (*STATIONARY_SCALES, *MOVING_SCALES)},
    **{("quantize_mx", name): SCALE_CODES for name in QUANTIZED_SCALES},
    ("gather", "indices"): (UINT32, INT32),
    ("local_gather", "index"): (UINT16,),
}
"""Where the engine takes a tile in some formats only (SDK 2.26.1 and 2.32, `nisa`)."""
TAKE_PACKED = frozenset({"matmul", "quantize_mx", "memset"})
COPY_PACKED = frozenset({"dma_copy", "copy", "stream_shuffle"})
"""Opcodes that take packed elements; copies of the same format besides."""


def misfits(instruction: Instruction) -> Iterator[str]:
    """What does not fit, in words that follow the opcode."""
    for name, access in (*instruction.inputs.items(), *instruction.outputs.items()):
        allowed = FORMATS.get((instruction.opcode, name))
        if allowed is not None and access.dtype not in allowed:
            yield f"has an operand {name} of {name_of(access.dtype)}"
        if is_packed(access.dtype) and not _takes_packed(instruction):
            yield (
                f"has an operand {name} of {name_of(access.dtype)}: packed elements are multiplied, "
                "copied as they are and set to 0"
            )
    yield from _RULES.get(instruction.opcode, _elementwise)(instruction)
    reduced = instruction.outputs.get("reduce_result")
    if reduced is not None and reduced.shape != _one_each(instruction.result.shape[:1], reduced):
        yield f"has a reduce_result of {reduced.shape} for {instruction.result.shape}"


def _takes_packed(instruction: Instruction) -> bool:
    if instruction.opcode in COPY_PACKED:
        formats = {a.dtype for a in (*instruction.inputs.values(), instruction.result)}
        return len(formats) == 1 and not instruction.attributes.get("accumulate")
    zero = instruction.opcode != "memset" or instruction.attributes.get("value") == 0
    return zero and instruction.opcode in TAKE_PACKED


def _one_each(partitions: tuple[int, ...], access: Access) -> tuple[int, ...]:
    """The shape of one element for each partition, of the rank of `access`."""
    return (*partitions, *(1 for _ in access.shape[1:]))


def _fits(shape: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether a tile is repeated along axes of length 1; one of fewer axes lacks its last ones."""
    if len(shape) > len(result):
        return False
    padded = (*shape, *(1 for _ in range(len(result) - len(shape))))
    return all(mine in (1, theirs) for mine, theirs in zip(padded, result, strict=True))


def _elementwise(instruction: Instruction) -> Iterator[str]:
    result = instruction.outputs.get("result")
    for name, access in instruction.inputs.items():
        if result is not None and not _fits(access.shape, result.shape):
            yield f"cannot bring its operand {name} {access.shape} into {result.shape}"


def _moves(name: str) -> Rule:
    """Elements are copied in order: shapes fit, or only group the same number of them differently."""

    def rule(instruction: Instruction) -> Iterator[str]:
        data, result = instruction.inputs[name], instruction.result
        regrouped = len(data.shape) != len(result.shape) and data.elements == result.elements
        if not regrouped and not _fits(data.shape, result.shape):
            yield f"cannot bring {data.shape} into {result.shape}"

    return rule


def _counts(expected: Callable[[Instruction], dict[str, int]]) -> Rule:
    """Operands have so many elements."""

    def rule(instruction: Instruction) -> Iterator[str]:
        operands = {**instruction.inputs, **instruction.outputs}
        for name, count in expected(instruction).items():
            if name in operands and operands[name].elements != count:
                yield f"has an operand {name} of {operands[name].shape}, not of {count} elements"

    return rule


def _transpose(instruction: Instruction) -> Iterator[str]:
    data, result = instruction.inputs["data"], instruction.result
    turned = (data.free_elements, data.partitions)
    fits = result.shape == turned if len(result.shape) == 2 else data.elements == result.elements
    if not fits:
        yield f"cannot turn {data.shape} into {result.shape}"


def _matmul(instruction: Instruction) -> Iterator[str]:
    stationary, moving = (instruction.inputs[name] for name in ("stationary", "moving"))
    rows = 1
    if instruction.attributes.get("perf_mode") and len(stationary.shape) == 3:
        rows = 2
        if stationary.shape[1] != rows or len(moving.shape) != 3 or moving.shape[1] != rows:
            yield f"takes two rows at a time, not {stationary.shape} and {moving.shape}"
    made = stationary.free_elements // rows * (moving.free_elements // rows)
    if instruction.result.elements != made:
        yield f"makes {made} elements of {stationary.shape} and {moving.shape}"

    for names, data in ((STATIONARY_SCALES, stationary), (MOVING_SCALES, moving)):
        packed = is_packed(stationary.dtype) or is_packed(moving.dtype)
        count = data.partitions // QUADRANT if packed else 0
        if packed and (data.partitions % QUADRANT or not is_packed(data.dtype)):
            yield f"multiplies {data.shape} of {name_of(data.dtype)} as packed elements"
        yield from _scales({n: instruction.inputs.get(n) for n in names}, count, data)


def _quantize(instruction: Instruction) -> Iterator[str]:
    data, result = instruction.inputs["data"], instruction.result
    fits = data.partitions == result.partitions and data.partitions % QUADRANT == 0
    if not fits or data.free_elements != ELEMENTS * result.free_elements:
        yield f"cannot pack {data.shape} into {result.shape}"
    found = {name: instruction.outputs.get(name) for name in QUANTIZED_SCALES}
    yield from _scales(found, data.partitions // QUADRANT, result)


def _scales(found: Mapping[str, Access | None], count: int, data: Access) -> Iterator[str]:
    """The scales of packed elements: a tile for each 32 partitions, and no more."""
    for number, (name, access) in enumerate(found.items()):
        wanted = (SCALES, data.free_elements) if number < count else None
        given = None if access is None else (access.partitions, access.free_elements)
        if given != wanted:
            yield f"has an operand {name} of {given}, not {wanted}"


def _tensor_reduce(instruction: Instruction) -> Iterator[str]:
    data, result = instruction.inputs["data"], instruction.result
    axes = instruction.attributes["axes"]
    assert isinstance(axes, tuple)
    kept = tuple(1 if n in axes else size for n, size in enumerate(data.shape))
    same_rank = len(result.shape) == len(data.shape)
    fits = result.shape == kept if same_rank else result.elements == math.prod(kept)
    if not fits:
        yield f"makes {kept} of {data.shape}, not {result.shape}"


def _local_gather(instruction: Instruction) -> Iterator[str]:
    source, index = instruction.inputs["source"], instruction.inputs["index"]
    width = instruction.attributes["elements_per_index"]
    valid = instruction.attributes.get("valid_indices")
    assert isinstance(width, int)
    if source.partitions % GATHERING_PARTITIONS or index.partitions != source.partitions:
        yield f"gathers from {source.shape} by {index.shape}"
        return
    there = GATHERING_PARTITIONS * index.free_elements
    each = min(valid, there) if isinstance(valid, int) else there
    if instruction.result.elements != source.partitions * each * width:
        yield f"makes {source.partitions} x {each * width}, not {instruction.result.shape}"


def _gather(instruction: Instruction) -> Iterator[str]:
    data, indices = instruction.inputs["data"], instruction.inputs["indices"]
    if data.partitions != indices.partitions or indices.shape != instruction.result.shape:
        yield f"gathers {instruction.result.shape} from {data.shape} by {indices.shape}"


def _stream_shuffle(instruction: Instruction) -> Iterator[str]:
    source, result = instruction.inputs["source"], instruction.result
    if source.free_elements != result.free_elements:
        yield f"cannot bring {source.shape} into {result.shape}"


def _scan(instruction: Instruction) -> Iterator[str]:
    result = instruction.result
    for name in ("data0", "data1"):
        data = instruction.inputs[name]
        if (data.partitions, data.elements) != (result.partitions, result.elements):
            yield f"has an operand {name} of {data.shape} for {result.shape}"
    initial = instruction.inputs.get("initial")
    if initial is not None and initial.shape != _one_each(result.shape[:1], initial):
        yield f"begins with {initial.shape} for {result.shape}"


def _bn_aggr(instruction: Instruction) -> Iterator[str]:
    data = instruction.inputs["data"]
    if data.free_elements % GROUP:
        yield f"takes groups of three, not {data.shape}"
    yield from _counts(lambda i: {"result": AGGREGATE * data.partitions})(instruction)


def _largest(instruction: Instruction) -> dict[str, int]:
    """The eight of each partition, and what is searched."""
    data = instruction.inputs["data"]
    eight = LARGEST * data.partitions
    found = dict.fromkeys(("values", "indices"), eight)
    searched = instruction.opcode == "match_replace8"
    return {**found, "result": data.elements if searched else eight}


def _nothing(instruction: Instruction) -> Iterator[str]:
    return iter(())


_RULES: dict[str, Rule] = {
    "bn_aggr": _bn_aggr,
    "bn_stats": _counts(lambda i: {"result": STATISTICS * i.inputs["data"].partitions}),
    "copy": _moves("data"),
    "dma_copy": _moves("source"),
    "find_index8": _counts(_largest),
    "gather": _gather,
    "local_gather": _local_gather,
    "match_replace8": _counts(_largest),
    "matmul": _matmul,
    "max8": _counts(_largest),
    "nonzero": _counts(
        lambda i: {"result": i.inputs["data"].elements + i.inputs["data"].partitions}
    ),
    "quantize_mx": _quantize,
    "partition_reduce": _counts(lambda i: {"result": i.inputs["data"].free_elements}),
    "print": _nothing,
    "core_barrier": _nothing,
    "while": _nothing,
    "sequence_bounds": _counts(lambda i: {"result": 2 * i.inputs["segment_ids"].elements}),
    "stream_shuffle": _stream_shuffle,
    "tensor_reduce": _tensor_reduce,
    "tensor_tensor_scan": _scan,
    "transpose": _transpose,
}
