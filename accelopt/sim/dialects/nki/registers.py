"""Registers of the device, and loops that run until one says stop: `nisa.register_*`,
`nl.dynamic_range`, `nl.fori_loop`, `nl.while_loop`, `while register:`.

A register is a tile of one int32 in no memory that engines reach: instructions on it are the sequencers'
own, of which one, the Sync engine's, stands for all. A loop of the device is a loop of the Program whose body begins with
the instruction `while`, which ends the loop where its condition is 0; how often it runs is not known
before. Source: SDK 2.32 `nki/deep-dives/nki-dynamic-loops.rst`, the language guide and `nki.isa`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Buffer
from accelopt.sim.affine import LoopVariable
from accelopt.sim.call_sites import call_chain, running_line
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import copied, fail, fill, new_tile, of_two, transfer
from accelopt.sim.dialects.neuronxcc.index import TileIndex, number_of
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki import versions
from accelopt.sim.dialects.nki.python_loops import counted
from accelopt.sim.errors import KernelTypeError, KernelValueError, SourceLine
from accelopt.sim.isa import indexed
from accelopt.sim.loops import Before, for_statement
from accelopt.sim.program import LoopKind
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current

ASSUMED_TRIPS = 2
"""How often a loop of the device runs for the rules, which do not execute it: more than once, so that
what one iteration leaves to the next is seen. The time asks `compute.trips`."""


class VirtualRegister:
    """A number that is known when the kernel runs."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, tile: TensorView, frozen: bool = False) -> None:
        self.tile = tile
        self.frozen = frozen

    def __bool__(self) -> bool:
        """`while register:` is a loop of the device; any other question has no answer here."""
        frame = sys._getframe(1)
        return _asked(self, frame)

    def _refused(self, *_: Any) -> NoReturn:
        mend = "Store it with nisa.register_store and compute on the tile; loop with nl.fori_loop."
        fail(KernelTypeError("register", "a register's value is not known to Python.", mend))

    __index__ = __int__ = __float__ = __eq__ = __ne__ = __lt__ = __le__ = _refused  # type: ignore[assignment]
    __gt__ = __ge__ = __floordiv__ = __mod__ = _refused
    __add__: Callable[..., Any] = _refused
    __radd__: Callable[..., Any] = _refused
    __sub__: Callable[..., Any] = _refused
    __rsub__: Callable[..., Any] = _refused
    __mul__: Callable[..., Any] = _refused
    __rmul__: Callable[..., Any] = _refused
    __neg__: Callable[..., Any] = _refused


def _arithmetic(op: str, *first: Any, reverse: bool = False) -> Callable[..., NkiScalar]:
    def operator(self: NkiScalar, *others: Any) -> NkiScalar:
        one, other = (*first, *((*others, self) if reverse else (self, *others)))
        return _of_scalars(op, one, other)

    return operator


class NkiScalar(VirtualRegister):
    """A number of the device that Python's +, - and * make new ones of, each an instruction (NKI 0.7).

    int32, which wraps (SDK 2.33, `nki/deep-dives/nki-scalar.rst`); int64 does not exist here."""

    dtype = dtypes.INT32

    def __init__(self, tile: TensorView) -> None:
        super().__init__(tile, frozen=True)

    def __bool__(self) -> bool:
        self._refused()

    def __pos__(self) -> NkiScalar:
        return self

    __neg__ = _arithmetic("subtract", 0)
    __add__, __radd__ = _arithmetic("add"), _arithmetic("add", reverse=True)
    __sub__, __rsub__ = _arithmetic("subtract"), _arithmetic("subtract", reverse=True)
    __mul__, __rmul__ = _arithmetic("multiply"), _arithmetic("multiply", reverse=True)


def _of_scalars(op: str, one: Any, other: Any) -> NkiScalar:
    """op(one, other), of a scalar and another or an int, by 32-bit integer arithmetic."""
    versions.use("arithmetic on a number of the device")
    for value in (one, other):
        if not isinstance(value, (NkiScalar, int, np.integer, TileIndex)):
            said = f"{type(value).__name__} is no operand of a scalar's arithmetic."
            fail(KernelTypeError("scalar", said, "Use an int or what nisa.scalar_load returns."))
    left, right = (v.tile if isinstance(v, NkiScalar) else made(v).tile for v in (one, other))
    return NkiScalar(of_two(op, _new_register(), left, right))


def scalar_of(source: Any) -> NkiScalar:
    """The only element of an int32 tensor in SBUF or HBM, as a scalar."""
    _check_scalars(source, "src")
    found = made()
    load(found, source)
    return NkiScalar(found.tile)


def store_scalar(target: Any, value: Any) -> None:
    """A scalar into the only element of an int32 tensor in SBUF or HBM."""
    if not isinstance(value, NkiScalar):
        mend = "Use nisa.memset for a number, nisa.register_store for a register."
        fail(KernelTypeError("scalar", f"value={value!r} is no NkiScalar.", mend))
    _check_scalars(target, "dst")
    store(target, value)


def _check_scalars(value: Any, name: str) -> None:
    if isinstance(value, TensorView) and value.dtype != dtypes.INT32:
        said = f"{name} is {dtypes.name_of(value.dtype)}, and a scalar is int32."
        fail(KernelTypeError("scalar", said, "Copy it to nl.int32 first."))


def register(value: Any, name: str) -> VirtualRegister:
    """`value`, when it is one."""
    if isinstance(value, VirtualRegister):
        return value
    mend = "Make one with nisa.register_alloc."
    fail(KernelTypeError("register", f"{name}={value!r} is no register.", mend))


def writable(value: Any) -> VirtualRegister:
    """A register that may be written: not the counter of a loop."""
    found = register(value, "dst")
    if found.frozen:
        said = "a scalar, such as the counter of a loop of the device, cannot be written."
        fail(KernelTypeError("register", said, "Its arithmetic makes new ones."))
    return found


def _new_register() -> TensorView:
    return new_tile((1, 1), dtypes.INT32, Buffer.REGISTER)


def made(value: Any = None) -> VirtualRegister:
    """A new register, holding a number, a register's value or a tensor's only element."""
    found = VirtualRegister(_new_register())
    if value is not None:
        write(found, value)
    return found


def write(target: VirtualRegister, value: Any) -> None:
    """A number, a register's value or a tensor's only element into a register."""
    if isinstance(value, TensorView):
        load(target, value)
    elif isinstance(value, VirtualRegister):
        copied(target.tile, value.tile)
    else:
        fill(target.tile, number_of(value))


def load(target: VirtualRegister, source: Any) -> None:
    """The only element of a tensor in SBUF or HBM into a register."""
    view = _single(source, "src")
    (copied if view.on_chip else transfer)(target.tile, view)


def store(target: Any, source: VirtualRegister) -> None:
    """A register's value into a tensor of one element in SBUF or HBM."""
    view = _single(target, "dst")
    (copied if view.on_chip else transfer)(view, source.tile)


def _single(value: Any, name: str) -> TensorView:
    if not isinstance(value, TensorView):
        fail(operands.operand_type(name, type(value).__name__))
    if value.size != 1:  # type: ignore[attr-defined]
        fail(KernelValueError("register", f"{name} has shape {value.shape}, not one element."))
    if value.dtype.kind not in "iu":
        said = f"{name} is {dtypes.name_of(value.dtype)}; registers hold whole numbers here."
        fail(KernelTypeError("register", said, "Copy it to nl.int32 first."))
    return value.replaced(shape=(1, 1), strides=(0, 0))


# Loops of the device.


class DeviceLoop:
    """A loop of the device that is being recorded."""

    def __init__(self, condition: TensorView, frame: FrameType) -> None:
        tracer = current()
        self.frame, self.line = frame, frame.f_lineno
        variable = LoopVariable(tracer.fresh_id(), 0, 1, ASSUMED_TRIPS)
        source = SourceLine(frame.f_code.co_filename, frame.f_lineno)
        self.scope = tracer.loop(variable, LoopKind.SEQUENTIAL, source, call_chain(frame))
        self.scope.__enter__()
        tracer.device_loops.append(self)
        tracer.emit(
            indexed.WHILE, outputs={}, inputs={"condition": condition.access()}, attributes={}
        )

    def close(self) -> None:
        """The body is complete."""
        current().device_loops.remove(self)
        self.scope.__exit__(None, None, None)


def _asked(value: VirtualRegister, frame: FrameType) -> bool:
    tracer, frame = current(), _kernels(frame)
    last = tracer.device_loops[-1] if tracer.device_loops else None
    if isinstance(last, DeviceLoop) and last.frame is frame and last.line == frame.f_lineno:
        last.close()
        return False
    if not _is_while(frame):
        value._refused()
    versions.use("`while` on a register")
    DeviceLoop(value.tile, frame)
    return True


def _kernels(frame: FrameType) -> FrameType:
    """The frame of the kernel's own code that a frame of ours was called by."""
    place = running_line()
    while frame.f_back is not None and frame.f_code.co_filename != place.file:
        frame = frame.f_back
    return frame


def _is_while(frame: FrameType) -> bool:
    import linecache

    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return line.strip().startswith(("while ", "while("))


def check_all_closed() -> None:
    """Raises KernelValueError when a loop of the device was left by break or return."""
    if current().device_loops:
        said = "a loop of the device cannot be left early."
        fail(KernelValueError("dynamic_loop", said, "Let its condition become 0."))


def _step(value: Any) -> int:
    if not isinstance(value, int) or value <= 0:
        said = f"step {value!r} of a loop of the device is no positive number known to Python."
        fail(KernelTypeError("dynamic_loop", said))
    return value


def _iterations(start: Any, stop: Any, step: int, frame: FrameType) -> Iterator[VirtualRegister]:
    """A counter, in the body of a loop while it is below `stop`: a scalar, unless a bound is a register
    (SDK 2.33, nl.fori_loop)."""
    bound = stop if isinstance(stop, VirtualRegister) else made(stop)
    plain = any(type(limit) is VirtualRegister for limit in (start, stop))
    index: VirtualRegister = made(start)
    index = VirtualRegister(index.tile, frozen=True) if plain else NkiScalar(index.tile)
    below, more = _new_register(), made(step)

    def compare() -> None:
        of_two("less", below, index.tile, bound.tile)

    compare()
    loop = DeviceLoop(below, frame)
    yield index
    of_two("add", index.tile, index.tile, more.tile)
    compare()
    loop.close()


class DynamicRange:
    """What nl.dynamic_range returns where a bound is a register."""

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.bounds = (start, stop, step)

    def __iter__(self) -> Iterator[VirtualRegister]:
        frame = sys._getframe(1)
        statement = for_statement(frame)
        before = None if statement is None else Before(frame, statement)
        yield from _iterations(*self.bounds, frame)
        changed = None if before is None else next(before.changes(lambda old, new: False), None)
        if changed is not None:
            said = f"{changed} from one iteration of a loop of the device to the next."
            mend = "Carry it in a tensor that is written in place."
            fail(KernelValueError("dynamic_loop", said, mend))


def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> Any:
    """A loop of the device. With bounds that are numbers, the same as any other loop."""
    first, last = (0, start) if stop is None else (start, stop)
    width = _step(step)
    if any(isinstance(bound, VirtualRegister) for bound in (first, last)):
        return DynamicRange(first, last, width)
    return counted(first, last, width)


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], Any], step: Any = 1) -> None:
    """body_fun(i) for i from lower to upper (exclusive), as a loop of the device; i is a register."""
    for index in _iterations(lower, upper, _step(step), _kernels(sys._getframe(1))):
        if body_fun(index) is not None:
            fail(KernelValueError("dynamic_loop", "the body of nl.fori_loop returns nothing."))


def while_loop(init: Any, body_fun: Callable[[Any], Any]) -> None:
    """r = init; while r is not 0: r = body_fun(r), as a loop of the device."""
    condition = made(register(init, "init"))
    loop = DeviceLoop(condition.tile, _kernels(sys._getframe(1)))
    write(condition, register(body_fun(made(condition)), "what the body of nl.while_loop returns"))
    loop.close()


def offset_of(value: Any) -> Any:
    """A run-time offset as a tile: a register's, or `value` itself."""
    return value.tile if isinstance(value, VirtualRegister) else value


def is_known(value: Any) -> bool:
    """True for an offset that Python knows."""
    return builder.is_number(value) or isinstance(value, TileIndex)
