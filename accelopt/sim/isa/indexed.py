"""Instructions driven by positions or by what elements are: selections, searches, gathers, control."""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.sim import attribute_kinds as kinds
from accelopt.sim.dtypes import BFLOAT16, FLOAT32, INT32, UINT16, UINT32
from accelopt.sim.isa.elementwise import REDUCED, REGISTERS
from accelopt.sim.isa.limits import FLOATS, PREDICATES, SELECTABLE, VECTOR, OperandLimits, call
from accelopt.sim.isa.opcode import Cost, Opcode
from accelopt.sim.isa.shapes import anything, counts
from accelopt.sim.program import Engine, Instruction

GATHERING_PARTITIONS = 16  # of one GpSimd core
LARGEST = 8


def _eight(instruction: Instruction, *names: str) -> dict[str, int]:
    """Operands that have eight elements for each partition."""
    return dict.fromkeys(names, LARGEST * instruction.inputs["data"].partitions)


def _gathered_in_groups(instruction: Instruction) -> Iterator[str]:
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


def _largest_of_groups(instruction: Instruction) -> Iterator[str]:
    data, count = instruction.inputs["data"], instruction.attributes["count"]
    elements = instruction.attributes["elements"]
    assert isinstance(count, int) and isinstance(elements, int)
    each = -(-count // GATHERING_PARTITIONS)
    if data.partitions % GATHERING_PARTITIONS or count > elements:
        yield f"takes {count} of {elements} elements in {data.partitions} partitions"
    elif elements > GATHERING_PARTITIONS * data.free_elements:
        yield f"takes {elements} elements of {data.shape}"
    for name, access in instruction.outputs.items():
        if access.elements != data.partitions * each:
            yield f"makes {data.partitions} x {each}, not {name} {access.shape}"


def _gathered(instruction: Instruction) -> Iterator[str]:
    data, indices = instruction.inputs["data"], instruction.inputs["indices"]
    if data.partitions != indices.partitions or indices.shape != instruction.result.shape:
        yield f"gathers {instruction.result.shape} from {data.shape} by {indices.shape}"


_VALUES = OperandLimits(rank=3, at_least=8, free=8)

MAX8 = Opcode(
    "max8", ("data",), engines=(Engine.VECTOR,),
    meaning="(P, 8): the largest, descending",
    calls={"max8": call(src=OperandLimits(at_least=8, free=16_384))},
    fits=counts(lambda i: _eight(i, "result")), mask_over="data",
)  # fmt: skip
FIND_INDEX8 = Opcode(
    "find_index8", ("data", "values"), {"successive": kinds.TRUTH}, (Engine.VECTOR,),
    optional=("successive",),
    meaning="(P, 8) first positions",
    calls={"nc_find_index8": call(data=OperandLimits(at_least=8, free=16_384), vals=_VALUES)},
    fits=counts(lambda i: _eight(i, "values", "result")), mask_over="data",
)  # fmt: skip
MATCH_REPLACE8 = Opcode(
    "match_replace8", ("data", "values"), {"replacement": kinds.NUMBER, "from_last": kinds.TRUTH},
    (Engine.VECTOR,), ("result", "indices"), ("indices", "from_last"),
    "first match of each value replaced",
    calls={
        "nc_match_replace8": call(data=OperandLimits(free=16_384), vals=_VALUES,
            dst_idx=OperandLimits(at_least=8, free=8, formats=(UINT16, UINT32, INT32))),
    },
    fits=counts(lambda i: {**_eight(i, "values", "indices"), "result": i.inputs["data"].elements}),
    not_lifted="it searches for values and replaces them", mask_over="data",
)  # fmt: skip
NONZERO = Opcode(
    "nonzero", ("data",), {"offset": kinds.INTEGER, "padding": kinds.INTEGER}, (Engine.GPSIMD,),
    meaning="(P, F + 1): where data is not 0, plus offset; padding; and how many, last",
    fits=counts(lambda i: {"result": i.inputs["data"].elements + i.inputs["data"].partitions}),
    not_lifted="it searches for what is not 0", starts_anywhere=True,
)  # fmt: skip
TOPK = Opcode(
    "topk", ("data",), {"elements": kinds.WIDTH, "count": kinds.WIDTH}, (Engine.GPSIMD,),
    ("result", "indices"),
    meaning="per 16 partitions the largest of the elements that they hold in turn, ascending, and where",
    limits={"data": OperandLimits(formats=(BFLOAT16,))},
    fits=_largest_of_groups, cost=Cost.LARGEST, not_lifted="it sorts: the largest elements are no "
    "reduction",
)  # fmt: skip
IOTA = Opcode(
    "iota", attributes={"expression": kinds.EXPRESSION}, engines=(Engine.GPSIMD,),
    meaning="result = affine expression of axes",
    elementwise=True, computes=False,
)  # fmt: skip
AFFINE_SELECT = Opcode(
    "affine_select", ("data",),
    {"predicate": kinds.PREDICATE, "negate": kinds.TRUTH, "on_false": kinds.NUMBER},
    (Engine.GPSIMD,), optional=("negate",),
    meaning="result = data where predicate, else on_false",
    calls={"affine_select": call(on_true_tile=OperandLimits(formats=SELECTABLE))},
    elementwise=True,
)  # fmt: skip
RANGE_SELECT = Opcode(
    "range_select", ("data", "bound0", "bound1"),
    {"op0": kinds.COMPARISON, "op1": kinds.COMPARISON, **REGISTERS, "range_start": kinds.POSITION,
        "on_false": kinds.NUMBER}, (Engine.VECTOR,), ("result", "reduce_result"), REDUCED,
    "result = data where op0(i, bound0) and op1(i, bound1), i = range_start + column",
    calls={
        "range_select": call(on_true_tile=OperandLimits(formats=FLOATS),
            bound0=OperandLimits(vector=True, formats=(FLOAT32,)),
            bound1=OperandLimits(vector=True, formats=(FLOAT32,)), reduce_res=VECTOR),
    },
    elementwise=True,
)  # fmt: skip
SELECT_REDUCE = Opcode(
    "select_reduce", ("predicate", "on_true", "on_false"),
    {"on_false": kinds.NUMBER, "reverse": kinds.TRUTH, **REGISTERS}, (Engine.VECTOR,),
    ("result", "reduce_result"), ("reverse", *REDUCED),
    "result = where(predicate, on_true, on_false)",
    calls={
        "select_reduce": call(("on_true", "predicate"), on_true=OperandLimits(formats=SELECTABLE),
            on_false=VECTOR, predicate=OperandLimits(formats=PREDICATES),
            reduce_res=OperandLimits(vector=True, formats=FLOATS)),
    },
    elementwise=True,
)  # fmt: skip
LOCAL_GATHER = Opcode(
    "local_gather", ("source", "index"),
    {"elements_per_index": kinds.WIDTH, "valid_indices": kinds.COUNT}, (Engine.GPSIMD,),
    optional=("valid_indices",),
    meaning="per 16 partitions gather by shared indices",
    limits={"index": OperandLimits(formats=(UINT16,))},
    calls={
        "local_gather": call(src_buffer=OperandLimits(psum=False), index=OperandLimits(psum=False,
            formats=(UINT16,))),
    },
    fits=_gathered_in_groups, cost=Cost.GATHER, not_lifted="it gathers by indices that 16 partitions share", computes=False,
)  # fmt: skip
GATHER = Opcode(
    "gather", ("data", "indices"), engines=(Engine.GPSIMD,),
    meaning="result[p, i] = data[p].flat[indices[p, i]]",
    limits={"indices": OperandLimits(formats=(UINT32, INT32))},
    calls={
        "gather_flattened": call(data=OperandLimits(rank=4), indices=OperandLimits(rank=4,
            formats=(UINT32, INT32))),
    },
    fits=_gathered, reaches_hbm=True,
)  # fmt: skip
SEQUENCE_BOUNDS = Opcode(
    "sequence_bounds", ("segment_ids",), engines=(Engine.GPSIMD,),
    meaning="(1, 2, F) starts, ends",
    calls={
        "sequence_bounds": call(segment_ids=OperandLimits(partitions=1, formats=(FLOAT32, INT32))),
    },
    fits=counts(lambda i: {"result": 2 * i.inputs["segment_ids"].elements}),
    not_lifted="it searches for the ends of segments",
)  # fmt: skip
WHILE = Opcode(
    "while", ("condition",), engines=(Engine.SYNC,), outputs=(),
    meaning="the first of a loop's body: the loop ends where its condition (1, 1) is 0",
    fits=anything, not_lifted="it runs a loop whose length is only known at run time",
    mask_over="condition", ordered=True, computes=False, ends_loop=True, starts_anywhere=True,
)  # fmt: skip
CORE_BARRIER = Opcode(
    "core_barrier", attributes={"tensor": kinds.INTEGER, "ranks": kinds.COUNT},
    engines=(Engine.GPSIMD, Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.SYNC), outputs=(),
    optional=("tensor", "ranks"),
    meaning="both cores of a logical core, or all `ranks`, come here before any goes on; the number of "
    "the tensor that the kernel names",
    fits=anything, computes=False, meets=True, starts_anywhere=True,
)  # fmt: skip
PRINT = Opcode(
    "print", ("data",), {"prefix": kinds.TEXT}, (Engine.GPSIMD,), outputs=(),
    meaning="device_print",
    fits=anything, mask_over="data", ordered=True, computes=False, reaches_hbm=True,
    starts_anywhere=True,
)  # fmt: skip
