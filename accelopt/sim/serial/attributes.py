"""What the attributes of an instruction may be, by opcode and name.

The names stand in `instruction_set.OPCODES`; here is the kind of value that each of them takes, so
that no room behind meets another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.affine import Affine
from accelopt.sim.instruction_set import OPCODES, Opcode
from accelopt.sim.mask import Mask
from accelopt.sim.operators import BINARY, COMPARISONS, REDUCTIONS, UNARY
from accelopt.sim.serial.layout import MAX_INTEGER, MalformedProgram

Test = Callable[[Any], bool]

SHUFFLED = 32
KEPT = 255  # in a shuffle mask: the partition keeps what it has
PERFORMANCE_MODES = frozenset({"double_row_gen3"})
COMMANDS = frozenset({"idle", "reset", "reduce", "reset_reduce"})


def _one_of(names: Iterable[Any]) -> Test:
    known = frozenset(names)
    return lambda value: isinstance(value, str) and value in known


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def is_number(value: Any) -> bool:
    """A number that arithmetic takes; infinite and undefined ones are numbers, too."""
    if isinstance(value, int):
        return abs(value) <= MAX_INTEGER
    return isinstance(value, float)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_INTEGER


def _are_integers(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(item) is int for item in value)


def _are_axes(value: Any) -> bool:
    return _are_integers(value) and len(set(value)) == len(value) and min(value, default=0) >= 0


def _is_shuffle(value: Any) -> bool:
    fits = _are_integers(value) and len(value) == SHUFFLED
    return fits and all(0 <= item < SHUFFLED or item == KEPT for item in value)


# By attribute name: the same in every opcode, or else below.
_TESTS: dict[str, Test] = {
    **dict.fromkeys(("op0", "op1", "op"), _one_of(BINARY)),
    **dict.fromkeys(("reduce_op",), _one_of(BINARY | REDUCTIONS)),
    **dict.fromkeys(("reverse", "reverse0", "reverse1", "negate", "transpose"), _is_truth),
    **dict.fromkeys(("is_stationary_onezero", "is_moving_onezero", "is_transpose"), _is_truth),
    **dict.fromkeys(("operand0", "operand1", "scale", "value", "initial"), is_number),
    **dict.fromkeys(("probability", "replacement", "on_true", "on_false"), is_number),
    "assign": _is_truth,
    "accumulate": lambda value: value is None or value == "add",
    "axes": _are_axes,
    "dtype": _one_of(dtypes.FORMATS),
    "elements_per_index": lambda value: _is_count(value) and value > 0,
    "expression": lambda value: isinstance(value, Affine),
    "loops": _are_integers,
    "oob_mode": _one_of(("error", "skip")),
    "perf_mode": _one_of(PERFORMANCE_MODES),
    "predicate": lambda value: isinstance(value, Mask),
    "prefix": lambda value: isinstance(value, str),
    "range_start": lambda value: type(value) is int or isinstance(value, Affine),
    "reduce_cmd": _one_of(COMMANDS),
    "shuffle_mask": _is_shuffle,
    "valid_indices": _is_count,
}
_IN_OPCODE: dict[tuple[str, str], Test] = {
    ("activation", "op"): _one_of(UNARY),
    ("loop_reduce", "op"): _one_of(BINARY | REDUCTIONS),
    ("matmul", "accumulate"): _is_truth,
    ("partition_reduce", "op"): _one_of(BINARY | REDUCTIONS),
    ("range_select", "op0"): _one_of(COMPARISONS),
    ("range_select", "op1"): _one_of(COMPARISONS),
    ("tensor_reduce", "op"): _one_of(BINARY | REDUCTIONS),
    ("tensor_scalar", "op0"): _one_of(BINARY | UNARY),
    ("tensor_scalar", "op1"): _one_of(BINARY | UNARY),
}
# Of any opcode: the format that results are rounded to, and a mark of assignments that were folded.
_COMMON = frozenset({"dtype", "assign"})


def check_operands(
    opcode: str, outputs: Sequence[str], inputs: Sequence[str], attributes: dict[str, Any]
) -> None:
    """Raises MalformedProgram for operands and attributes that this opcode does not have, lacks, or
    has of another kind."""
    row = OPCODES[opcode]
    if len(set(outputs)) < len(outputs) or len(set(inputs)) < len(inputs):
        raise MalformedProgram(f"{opcode} names an operand twice")
    if not set(outputs) <= set(row.outputs) or not set(inputs) <= set(row.inputs):
        raise MalformedProgram(f"{opcode} does not have these operands")
    lacking = _required(row) - {*outputs, *inputs, *attributes}
    for op, operand in (("op0", "operand0"), ("op1", "operand1")):  # tensor_scalar's may be of one
        if operand in row.inputs and attributes.get(op) in BINARY:
            lacking |= {operand} - {*inputs, *attributes}
    if lacking:
        raise MalformedProgram(f"{opcode} lacks {min(lacking)}")
    for name, value in attributes.items():
        if name not in row.attributes and name not in _COMMON:
            raise MalformedProgram(f"{opcode} has no attribute {name!r}")
        if name in inputs or not _IN_OPCODE.get((opcode, name), _TESTS[name])(value):
            raise MalformedProgram(f"{opcode} cannot have {name}={str(value)[:40]!r}")


def _required(row: Opcode) -> set[str]:
    """Names that must be there, as an operand or as an attribute."""
    return {*row.outputs, *row.inputs, *row.attributes} - set(row.optional)
