"""What every NKI call needs: arguments checked, operands turned into accesses, results made, one
instruction emitted."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim import attribute_kinds as kinds
from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, Term, TileAxis, variable
from accelopt.sim.dialects.neuronxcc.index import MaskExpression, TileIndex, number_of
from accelopt.sim.dialects.neuronxcc.poison import POISON, is_poisoned
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.errors import KernelError, KernelTypeError
from accelopt.sim.instruction_set import LIMITS
from accelopt.sim.isa import elementwise, limits, movement
from accelopt.sim.isa.limits import ANY, OperandLimits
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.mask import EVERYTHING, NOTHING, Mask
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.program import AttributeValue, Buffer, Engine
from accelopt.sim.rules import indexing, operands
from accelopt.sim.tracer import current

Number = (int, float, bool, np.number, np.bool_)

TOLERATED = frozenset(
    "name instr_name mode oob_mode dge_mode compute_dtype experimental_flags engine "
    "precise_schedule directives lazy_initialization buffer parallel_reduce asynchronous".split()
)
"""Keyword arguments that public kernels pass where the signature does not show them."""

Function = TypeVar("Function", bound=Callable[..., Any])


def fail(error: KernelError) -> NoReturn:
    """Raises the error at the kernel's current line: the trace cannot go on."""
    raise current().blamed(error)


def refuse(error: KernelError) -> None:
    """Raises the error, or records it and goes on when violations are collected."""
    current().refuse(error)


def api(
    function: Function,
    tolerated: frozenset[str] = TOLERATED,
    mends: Mapping[str, str] | None = None,
) -> Function:
    """An NKI call: refuses host calls, unknown and missing arguments, as the real tracer does.
    `mends` says what to do instead of a keyword that it does not take."""
    signature = inspect.signature(function)
    known = frozenset(signature.parameters)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        tracer = current()
        if tracer.collecting and is_poisoned((*args, *kwargs.values())):
            return POISON
        try:
            if not kwargs.keys() <= known:
                kwargs = known_only(kwargs)
            return function(*args, **kwargs)
        except KernelError as error:
            if not tracer.collecting:
                raise
            tracer.collect(error)
            return POISON
        except TypeError:
            misfit = _misfit(signature, args, kwargs)
            if not misfit:
                raise  # not from this call, but from inside of it
            refusal = _bad_arguments(function, misfit)
        if not tracer.collecting:
            fail(refusal)
        tracer.collect(refusal)
        return POISON

    def known_only(kwargs: dict[str, Any]) -> dict[str, Any]:
        unknown = sorted(kwargs.keys() - known - tolerated)
        if unknown:
            problem = f"got an unexpected keyword {unknown[0]!r}"
            fail(_bad_arguments(function, problem, (mends or {}).get(unknown[0], "")))
        return {name: value for name, value in kwargs.items() if name in known}

    return call  # type: ignore[return-value]


def named(
    name: str,
    function: Callable[..., Any],
    tolerated: frozenset[str] = TOLERATED,
    mends: Mapping[str, str] | None = None,
) -> Callable[..., Any]:
    """A call that emits nothing, under its public name: refuses unknown and missing arguments."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        known = {k: v for k, v in kwargs.items() if k in signature.parameters or k not in tolerated}
        try:
            signature.bind(*args, **known)
        except TypeError as error:
            wrong = next((k for k in known if k not in signature.parameters), "")
            fail(_bad_arguments(call, str(error), (mends or {}).get(wrong, "")))
        return function(*args, **known)

    call.__name__ = call.__qualname__ = name
    return call


def _misfit(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why the arguments do not fit the signature; empty where they do."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return str(error)
    return ""


def _bad_arguments(function: Callable[..., Any], problem: str, mend: str = "") -> KernelTypeError:
    """What is wrong with a call, and what to do: `mend`, or what it takes."""
    shown = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    return KernelTypeError(
        "arguments",
        f"{function.__name__}() {problem}.",
        mend or f"Its signature is {function.__name__}{inspect.Signature(shown)}.",
    )


def names_of(*modules: ModuleType) -> dict[str, Any]:
    """The NKI calls that modules define, by name, and what else their `__all__` lists."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if name in vars(module).get("__all__", ())
        or (hasattr(value, "__wrapped__") and value.__module__ == module.__name__)
    }


# Operands.


def in_reach_of_gpsimd(mend: str = "Copy it to SBUF.", **tiles: TensorView) -> None:
    """Refuses tiles in PSUM, which the GpSimd engine cannot reach."""
    for name, view in tiles.items():
        if view.in_psum:
            refuse(operands.wrong_memory(name, repr(view), "SBUF for the GpSimd engine", mend))


def mask_of(mask: Any) -> Mask:
    """The `mask=` argument as a Mask; None is no mask, a bool masks everything or nothing."""
    if mask is None:
        return EVERYTHING
    if isinstance(mask, (bool, np.bool_)):
        return EVERYTHING if mask else NOTHING
    if isinstance(mask, MaskExpression) and not mask.negated:
        if not all(constraint.is_affine for constraint in mask.mask.constraints):
            fail(indexing.unsupported_mask("a mask contains '//' or '%' of an index."))
        return mask.mask
    fail(indexing.unsupported_mask(f"mask={mask!r} is not a conjunction of affine comparisons."))


def tile(value: Any, name: str) -> TensorView:
    """An on-chip operand."""
    if not isinstance(value, TensorView):
        kind = "an index" if isinstance(value, TileIndex) else type(value).__name__
        mend = (
            "nisa.iota turns an index into a tile."
            if isinstance(value, TileIndex)
            else "Pass a tile in SBUF or PSUM (nl.load brings one from HBM)."
        )
        fail(operands.operand_type(name, kind, mend))
    if not value.on_chip:
        fail(
            operands.wrong_memory(name, repr(value), "SBUF or PSUM", "nl.load it into SBUF first.")
        )
    return value


def in_hbm(value: Any, name: str) -> TensorView:
    """An operand in HBM."""
    if not isinstance(value, TensorView):
        fail(
            operands.operand_type(
                name, type(value).__name__, "Pass a tensor in HBM, such as a parameter."
            )
        )
    if value.on_chip:
        fail(
            operands.wrong_memory(
                name,
                repr(value),
                "HBM",
                "Use nl.copy or plain assignment between on-chip tiles.",
            )
        )
    return value


def check(api_name: str, **given: Any) -> None:
    """Applies the row of the table of limits to an instruction's operands; what is not a tile is
    left to the caller."""
    tiles = {name: v for name, v in given.items() if isinstance(v, TensorView) and v.on_chip}
    form: list[object] = [api_name]
    for name, view in tiles.items():
        form += (name, view.tile_shape, view.storage.buffer, view.dtype)
    fitting, key = current().fitting, tuple(form)
    if key in fitting:
        return
    row, fit = LIMITS.get(api_name, ANY), True
    for name, view in tiles.items():
        fit &= _fits(api_name, name, view, row.operands.get(name, limits.TILE))
    for first, second in row.not_both_in_psum:
        if first in tiles and second in tiles and tiles[first].in_psum and tiles[second].in_psum:
            refuse(operands.both_in_psum(api_name, first, second))
            fit = False
    if row.same_partitions:
        check_same_partitions(**tiles)
    if fit:
        fitting.add(key)


def _fits(api_name: str, name: str, view: TensorView, row: OperandLimits) -> bool:
    """True when an operand is within its limits; refuses it for each that it exceeds."""
    shape = view.tile_shape
    elements = math.prod(shape[1:])
    problems: list[KernelError] = []
    if len(shape) > row.rank:
        problems.append(operands.too_many_dimensions(api_name, name, shape, row.rank))
    if shape[0] > row.partitions:
        problems.append(
            operands.dimension_too_large(api_name, name, shape, shape[0], row.partitions)
        )
    most = row.free or (limits.MAX_FREE_IN_PSUM if view.in_psum else limits.MAX_FREE_IN_SBUF)
    if row.vector and elements != 1:
        problems.append(operands.not_a_vector(name, elements))
    elif not row.at_least <= elements <= most:
        problems.append(operands.dimension_too_large(api_name, name, shape, elements, most))
    if (view.in_psum and not row.psum) or (not view.in_psum and not row.sbuf):
        mend = "Copy it with nl.copy (or nisa.tensor_copy) first."
        problems.append(operands.wrong_memory(name, repr(view), row.memories, mend))
    if row.formats and view.dtype not in row.formats:
        allowed = ", ".join(dtypes.name_of(dtype) for dtype in row.formats)
        problems.append(
            operands.unsupported_format(api_name, name, dtypes.name_of(view.dtype), allowed)
        )
    for problem in problems:
        refuse(problem)
    return not problems


def check_same_partitions(**tiles: TensorView | None) -> None:
    """All operands of an instruction span the same partitions."""
    given = {name: t.tile_shape[0] for name, t in tiles.items() if t is not None}
    if len(set(given.values())) > 1:
        fail(operands.partition_mismatch(given))


def check_partitions(shape: tuple[int, ...]) -> None:
    """At most 128 partitions."""
    if shape and shape[0] > limits.MAX_PARTITIONS:
        fail(operands.too_many_partitions(shape[0], limits.MAX_PARTITIONS))


def column(value: Any) -> Any:
    """A per-partition operand as a (P, 1) tile; numbers stay as they are."""
    if isinstance(value, TensorView) and value.ndim > 2 and value.free_elements == 1:
        return value.reshape((value.tile_shape[0], 1))
    return value


def generation() -> int:
    """2 for trn1, 3 for trn2, 4 for trn3."""
    return TARGETS[current().target].generation


def is_number(value: Any) -> bool:
    """True for Python and NumPy scalars, zero-dimensional arrays, and loop indices."""
    if isinstance(value, (np.ndarray, TileIndex)):
        return not value.shape
    return isinstance(value, Number)


def number(value: Any) -> int | float | bool:
    """The scalar as a plain Python number. Where a loop index is an operand, each iteration has a
    constant of its own: its loop is unrolled."""
    if isinstance(value, TileIndex):
        return number_of(value)
    plain = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    if kinds.is_number(plain):
        return plain  # type: ignore[no-any-return]
    try:
        return float(plain)  # whole numbers that no integer format holds, long doubles
    except (OverflowError, TypeError, ValueError):
        mend = "Pass a number that float32 or int32 can hold."
        fail(KernelTypeError("operand_number", f"{plain!r:.40} is no number of an operand.", mend))


def parse_dtype(value: Any) -> np.dtype:
    """Any spelling of an NKI number format; KernelTypeError for what is none."""
    try:
        return dtypes.parse(value)
    except TypeError as error:
        fail(KernelTypeError("dtype", f"{error}.", f"Use one of: {', '.join(dtypes.FORMATS)}."))


def result_dtype(op: str, promoted: np.dtype) -> np.dtype:
    """The default format of an nl operation: comparisons and logic give bool, and a quotient of
    integers is float32 (the public resize kernel floors `position / width` afterwards)."""
    if op == "divide" and dtypes.is_integer(promoted):
        return dtypes.FLOAT32
    return dtypes.BOOL if op in COMPARISONS or op.startswith("logical_") else promoted


def operand_dtype(value: Any) -> np.dtype:
    """The dtype an operand promotes with: its own, or that of a Python number (S24)."""
    if isinstance(value, TensorView):
        return value.dtype
    if isinstance(value, TileIndex):
        if value.shape:
            tile(value, "operand")
        return dtypes.of_scalar(0)
    return dtypes.of_scalar(value)


# Results and instructions.


def new_tile(shape: tuple[int, ...], dtype: Any, buffer: Buffer = Buffer.SBUF) -> TensorView:
    """Storage for a result, named and freed by the compiler."""
    check_partitions(shape)
    return whole(current().declare(shape, parse_dtype(dtype), buffer, temporary=True))


def emit(
    opcode: Opcode,
    *,
    result: TensorView,
    inputs: Mapping[str, Any] | None = None,
    attributes: dict[str, AttributeValue] | None = None,
    outputs: Mapping[str, TensorView | None] | None = None,
    mask: Mask | None = None,
    engine: Any = None,
) -> TensorView:
    """One instruction. Inputs that are tiles become accesses, numbers become attributes, None is
    left out; operand masks join the instruction's, except for matmul. The instruction keeps the
    dictionary of attributes. Returns the result, which remembers the mask that it was written
    under."""
    condition = mask or EVERYTHING
    scalars: dict[str, AttributeValue] = {} if attributes is None else attributes
    accesses: dict[str, Access] = {}
    if inputs:
        views: list[tuple[str, TensorView]] = []
        for name, value in inputs.items():
            if isinstance(value, TensorView):
                views.append((name, value))
                if value.mask.constraints and not opcode.product:
                    condition = condition & value.mask
            elif value is not None:
                scalars[name] = number(value)
        for name, view in views:
            accesses[name] = view.access(condition)
    written = {"result": result.access(condition)}
    if outputs:
        for name, output in outputs.items():
            if output is not None:
                written[name] = output.access()
    scalars["dtype"] = dtypes.name_of(result.dtype)
    if not opcode.transfers and any(
        access.tensor.buffer is Buffer.REGISTER
        for access in (*written.values(), *accesses.values())
    ):
        engine = Engine.SYNC
    current().emit(
        opcode,
        outputs=written,
        inputs=accesses,
        attributes=scalars,
        mask=condition,
        engine=engine_of(engine),
    )
    if condition.constraints:
        result.written_mask = condition.simplified()
    else:
        result.written_mask = condition
    return result


def of_two(
    op: str,
    result: TensorView,
    one: TensorView,
    other: TensorView,
    mask: Mask | None = None,
    engine: Any = None,
    assigns: bool = False,
) -> TensorView:
    """result = op(one, other), all of one shape; `assigns` where a product may add to `one` itself."""
    attributes: dict[str, AttributeValue] = {
        "op": op,
        **({movement.ASSIGN: True} if assigns else {}),
    }
    return emit(elementwise.TENSOR_TENSOR, result=result, inputs={"data1": one, "data2": other},
                attributes=attributes, mask=mask, engine=engine)  # fmt: skip


def with_operand(
    op: str,
    result: TensorView,
    data: TensorView,
    operand: Any,
    reverse: bool = False,
    mask: Mask | None = None,
    engine: Any = None,
) -> TensorView:
    """result = op(data, operand), the operand a number or (P, 1); `reverse` exchanges them."""
    inputs = {"data": data, "operand0": column(operand)}
    return emit(elementwise.TENSOR_SCALAR, result=result, inputs=inputs, mask=mask, engine=engine,
                attributes={"op0": op, "reverse0": reverse})  # fmt: skip


def applied(op: str, result: TensorView, data: TensorView, mask: Mask | None = None) -> TensorView:
    """result = op(data), on the Scalar engine."""
    return emit(elementwise.ACTIVATION, result=result, inputs={"data": data}, mask=mask,
                attributes={"op": op, "scale": 1.0})  # fmt: skip


def fill(
    result: TensorView, value: Any, mask: Mask | None = None, engine: Any = None
) -> TensorView:
    """result = a number."""
    attributes: dict[str, AttributeValue] = {"value": number(value)}
    return emit(movement.MEMSET, result=result, attributes=attributes, mask=mask, engine=engine)


def copied(
    result: TensorView,
    source: TensorView,
    mask: Mask | None = None,
    engine: Any = None,
    assigns: bool = False,
) -> TensorView:
    """result = source, by an engine; `assigns` where an instruction may write the result itself."""
    attributes: dict[str, AttributeValue] = {movement.ASSIGN: True} if assigns else {}
    return emit(movement.COPY, result=result, inputs={"data": source}, attributes=attributes,
                mask=mask, engine=engine)  # fmt: skip


def transfer(
    result: TensorView,
    source: TensorView,
    mask: Mask | None = None,
    *,
    oob_mode: str = "error",
    accumulate: str | None = None,
    **more: AttributeValue,
) -> TensorView:
    """result = source, by DMA."""
    return emit(movement.DMA_COPY, result=result, inputs={"source": source}, mask=mask,
                attributes={"oob_mode": oob_mode, "accumulate": accumulate, **more})  # fmt: skip


def engine_of(engine: Any) -> Engine | None:
    """The `engine=` argument; unknown_engine and None leave the choice open."""
    if engine is None or isinstance(engine, Engine):
        return engine
    name = getattr(engine, "name", str(engine))
    return None if name in ("unknown", "0") else Engine(name)


def permuted(mask: Mask, axes: tuple[int, ...]) -> Mask:
    """The mask of a tile as a mask of the tile with its axes in another order."""
    rank = len(axes)
    moved: dict[Term, Affine] = {
        TileAxis(old - rank, axis.extent): variable(TileAxis(new - rank, axis.extent))
        for new, old in enumerate(axes)
        for constraint in mask.constraints
        for axis in constraint.axes
        if axis.position == old - rank
    }
    return Mask(tuple(constraint.substitute(moved) for constraint in mask.constraints))
