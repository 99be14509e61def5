"""Operands of one instruction, compiled: functions that return this iteration's tile as an array.

A tile is a strided view of its tensor's storage, remembered by address when addresses recur. Tiles
that no view can describe (run-time indices, masked elements that lie outside of the tensor) are
gathered and scattered by element numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.compute.analysis.storage import Storage
from accelopt.sim.compute.tiles.addressing import Address, byte_address, distinct_values, executions
from accelopt.sim.compute.tiles.elements import Elements, Keys, column
from accelopt.sim.compute.tiles.masked_tiles import Pattern, Window, compiler
from accelopt.sim.compute.tiles.thread_state import Lane
from accelopt.sim.errors import KernelIndexError, Unsupported
from accelopt.sim.instruction_set import mask_shape
from accelopt.sim.mask import Mask
from accelopt.sim.program import AttributeValue, Instruction, Loop

Closure = Callable[[], object]
"""Runs one instruction for the current loop values."""

ReadClosure = Callable[[], np.ndarray]
FLOAT32, FLOAT64 = dtypes.FLOAT32, dtypes.FLOAT64


Calculate = Callable[[np.ndarray], object]
"""Computes a result into the array it is given."""


class Destination(NamedTuple):
    """Where an instruction puts its result: `target` returns the array to compute into, `commit`
    converts and stores it, None when the target is the memory itself, of the format `held`."""

    target: ReadClosure
    commit: Callable[[np.ndarray], None] | None
    held: np.dtype

    def put(self, values: np.ndarray) -> None:
        """Stores values, converted."""
        if self.commit is not None:
            self.commit(values)
        else:
            np.copyto(self.target(), dtypes.convert(values, self.held))

    def put_all(self, values: np.ndarray) -> None:
        """Stores values that may be grouped in other axes."""
        self.put(values.reshape(self.target().shape))

    def computed(self, calculate: Calculate) -> Closure:
        """Computes into the target and stores."""
        target, commit = self.target, self.commit
        if commit is None:
            return lambda: calculate(target())

        def run() -> None:
            values = target()
            calculate(values)
            commit(values)

        return run


class LaneSite:
    """One instruction in one lane. The axes of its masks have keys: positions from the last for
    the instruction's mask, and what the opcode chooses for operands with masks of their own."""

    def __init__(
        self,
        instruction: Instruction,
        loops: tuple[Loop, ...],
        lane: Lane,
    ) -> None:
        self.instruction = instruction
        self.loops = loops
        self.lane = lane
        self.compile = compiler(lane.slots, lane.registers)
        self.window = Window(self.compile)
        self.mask_shape = mask_shape(instruction)
        keys = {-n: -n for n in range(1, len(self.mask_shape) + 1)}
        several = self.window.add(instruction.mask, keys)
        self.pattern = Pattern(several, self.mask_shape, self.compile) if several else None
        self._starts: dict[int, Affine] = {}  # by identity of accesses, which `_held` keeps alive
        self._held: list[Access] = []
        self.prelude: Closure | None = None  # runs first, also when the mask leaves nothing

    def constrain(self, mask: Mask, keys: dict[int, Hashable]) -> None:
        """Adds an operand's own mask, one axis at a time."""
        if self.window.add(mask, keys):
            raise Unsupported(
                "an operand mask that constrains two axes at once",
                "Constrain each axis by a comparison of its own.",
                self.instruction.source,
            )

    # What the instruction says.

    def attribute(self, name: str, default: AttributeValue = None) -> AttributeValue:
        """An attribute, or the default when it is absent."""
        return self.instruction.attributes.get(name, default)

    def text(self, name: str) -> str:
        """An attribute that is a word; empty when absent or None."""
        value = self.attribute(name)
        return "" if value is None else str(value)

    def input(self, name: str) -> Access | None:
        """An input that is a tile."""
        return self.instruction.inputs.get(name)

    @property
    def computes(self) -> np.dtype:
        """What the engine computes in: float32, or float64 where a tile has it."""
        accesses = (*self.instruction.inputs.values(), *self.instruction.outputs.values())
        return FLOAT64 if any(a.dtype == FLOAT64 for a in accesses) else FLOAT32

    @property
    def result(self) -> Access:
        """The main output."""
        return self.instruction.result

    # Reading.

    def pattern_now(self) -> np.ndarray | None:
        """The pattern of the current iteration inside of the window."""
        if self.pattern is None:
            return None
        keys = [-n for n in range(len(self.mask_shape), 0, -1)]
        return self.pattern()[self.window.slices(keys, self.mask_shape)]

    def view(self, access: Access, keys: Keys | None = None) -> ReadClosure:
        """The tile as it is stored: a view, or a copy of gathered elements."""
        keys = _positions(access) if keys is None else keys
        if access.indirect or not self.inside(access):
            gather = Elements(self, access, keys)
            return lambda: gather.load(self.pattern_now())
        return self._view(access, keys)

    def whole(self, access: Access) -> ReadClosure:
        """A view of the tile that no mask narrows."""
        return self._view(access, (None,) * len(access.shape))

    def values(self, access: Access, keys: Keys | None = None) -> ReadClosure:
        """The tile in float32, as engines compute, or in float64."""
        read = self.view(access, keys)
        if dtypes.stored(access.dtype) in (FLOAT32, FLOAT64):
            return read
        return lambda: read().astype(np.float32)

    def operand(self, name: str, rank: int) -> ReadClosure:
        """A number or (P, 1) tile that broadcasts against a tile of some rank, in float32."""
        access = self.input(name)
        if access is None:
            value = self.attribute(name)
            assert isinstance(value, (int, float)), f"{name} is missing"
            constant = self.computes.type(value)
            return lambda: constant  # type: ignore[return-value]
        return self.values(column(access, rank))

    # Writing.

    def destination(self, access: Access, compute: np.dtype | None = FLOAT32, keys: Keys | None = None,
                    alias: bool = False) -> Destination:  # fmt: skip
        """Where to put values computed in a dtype (None: values that are stored as they come).

        `alias` asks for memory of its own, because the result is read after it is first written.
        """
        keys = _positions(access) if keys is None else keys
        rounding = self._rounding(access)
        compute = access.dtype if (compute, access.dtype) == (FLOAT32, FLOAT64) else compute
        if access.indirect or not self.inside(access):
            return self._scattered(access, compute, keys, rounding)
        view = self._view(access, keys)
        held = dtypes.stored(access.dtype)
        if compute in (None, held) and rounding is None and self.pattern is None and not alias:
            return Destination(view, None, held)

        def commit(values: np.ndarray) -> None:
            place = view()
            stored = values if rounding is None else rounding(values)
            stored = stored if stored.dtype == held else dtypes.convert(stored, held)
            pattern = self.pattern_now()
            where = True if pattern is None else _touched(pattern, place.shape)
            np.copyto(place, stored, where=where)

        return Destination(self._temporary(view, compute or held), commit, held)

    def computed(self, calculate: Calculate, alias: bool = False) -> Closure:
        """Computes the result in float32 and stores it."""
        return self.destination(self.result, alias=alias).computed(calculate)

    def put(self, read: ReadClosure) -> Closure:
        """Stores what is read as the result, converted."""
        put = self.destination(self.result, None).put
        return lambda: put(read())

    def by_partition(self, access: Access) -> tuple[int | None, ...]:
        """Keys of a tile of which each partition is computed from that of the masked operand."""
        return (-len(self.mask_shape), *(None for _ in access.shape[1:]))

    def _rounding(self, access: Access) -> Callable[[np.ndarray], np.ndarray] | None:
        """How a result is rounded before it is stored; None when storing it does that."""
        name = self.attribute("dtype")
        main = access is self.instruction.outputs.get("result")
        wanted = dtypes.parse(name) if main and isinstance(name, str) else access.dtype
        if wanted == access.dtype and wanted != dtypes.TFLOAT32:
            return None
        if dtypes.TFLOAT32 in (wanted, access.dtype):
            return lambda values: dtypes.convert(dtypes.convert(values, wanted), access.dtype)
        return partial(dtypes.convert, dtype=wanted)

    def _temporary(self, like: ReadClosure, dtype: np.dtype) -> ReadClosure:
        lane = self.lane
        return lambda: lane.scratch(like().shape, dtype)

    def _scattered(
        self,
        access: Access,
        compute: np.dtype | None,
        keys: Keys,
        rounding: Callable[[np.ndarray], np.ndarray] | None,
    ) -> Destination:
        elements = Elements(self, access, keys)
        held = dtypes.stored(access.dtype)

        def target() -> np.ndarray:
            return self.lane.scratch(elements.shape(), compute or held)

        def commit(values: np.ndarray) -> None:
            stored = values if rounding is None else rounding(values)
            elements.save(dtypes.convert(stored, held), self.pattern_now())

        return Destination(target, commit, held)

    # Views.

    def storage(self, access: Access) -> Storage:
        """The memory behind an access."""
        return self.lane.storages[access.tensor]

    def address(self, access: Access) -> Address:
        """The tile's first byte in its storage."""
        return self.compile(self._start(access))

    def _start(self, access: Access) -> Affine:
        found = self._starts.get(id(access))
        if found is None:
            found = byte_address(access, self.storage(access).layout.block_strides)
            self._starts[id(access)] = found
            self._held.append(access)
        return found

    def inside(self, access: Access) -> bool:
        """True when every element lies in the storage, masked or not, in every iteration."""
        start, item = self._start(access), access.dtype.itemsize
        first, last = access.tile_reach
        low, high = start.bounds
        low += first * item
        high += (last + 1) * item
        if low >= 0 and high <= self.storage(access).layout.size:
            return True
        return self.pattern is None and not access.indirect and not self.window.trivial

    def _view(self, access: Access, keys: Keys) -> ReadClosure:
        storage, address = self.storage(access), self.address(access)
        dtype = dtypes.stored(access.dtype)
        strides = tuple(s * dtype.itemsize for s in access.strides)
        shape, source = access.shape, self.instruction.source

        def make(offset: int, window: tuple[slice, ...] | None = None) -> np.ndarray:
            extents, place = shape, offset
            if window is not None:
                bounds = [s.indices(n) for s, n in zip(window, shape, strict=True)]
                extents = tuple(last - first for first, last, _ in bounds)
                place += sum(b[0] * s for b, s in zip(bounds, strides, strict=True))
            try:
                tile: np.ndarray = np.ndarray(extents, dtype, storage.buffer, place, strides)
                return tile
            except (ValueError, TypeError):
                raise KernelIndexError(
                    "err_tensor_access_out_of_bound",
                    f"a tile of '{access.tensor.name}' reaches outside of its "
                    f"{storage.layout.size} bytes, from byte {place}.",
                    source=source,
                ) from None

        if not self.window.keys.isdisjoint(keys):
            return self._windowed(address, make, keys, shape, storage)
        if not self.loops or distinct_values(self._start(access)) >= executions(self.loops):
            return lambda: make(address())
        views: dict[int, np.ndarray] = {}
        storage.views.append(views)  # type: ignore[arg-type]

        def view() -> np.ndarray:
            offset = address()
            found = views.get(offset)
            if found is None:
                found = views[offset] = make(offset)
            return found

        return view

    def _windowed(self, address: Address, make: Callable[..., np.ndarray], keys: Keys,
                  shape: tuple[int, ...], storage: Storage) -> ReadClosure:  # fmt: skip
        window = self.window
        views: dict[object, np.ndarray] = {}
        storage.views.append(views)

        def view() -> np.ndarray:
            key = (address(), window.state)
            found = views.get(key)
            if found is None:
                if len(views) > 4096:
                    views.clear()
                found = views[key] = make(key[0], window.slices(keys, shape))
            return found

        return view


def _positions(access: Access) -> tuple[int, ...]:
    return _axes(len(access.shape))


@functools.lru_cache(maxsize=16)
def _axes(rank: int) -> tuple[int, ...]:
    return tuple(range(-rank, 0))


def _touched(pattern: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Where a result lies of which some element of a masked operand takes part: axes that the
    result does not share with the mask count as reduced."""
    if pattern.ndim != len(shape):
        rows = np.asarray(pattern.any(axis=tuple(range(1, pattern.ndim))))
        return rows.reshape((-1,) + (1,) * (len(shape) - 1))
    reduced = tuple(n for n, size in enumerate(shape) if size != pattern.shape[n])
    return np.asarray(pattern.any(axis=reduced, keepdims=True)) if reduced else pattern


def flat_free(access: Access) -> Access | None:
    """The tile with its free axes as one; None when they do not have one stride."""
    if len(access.shape) == 2:
        return access
    if len(access.shape) < 2:
        return None
    free = [(n, s) for n, s in zip(access.shape[1:], access.strides[1:], strict=True) if n > 1]
    for (_, outer), (size, inner) in pairwise(free):
        if outer != size * inner:
            return None
    stride = free[-1][1] if free else 1
    shape = (access.shape[0], math.prod(access.shape[1:]))
    return replace(access, shape=shape, strides=(access.strides[0], stride))
