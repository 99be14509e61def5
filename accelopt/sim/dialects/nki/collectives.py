"""nki.collectives: what the ranks of one launch pass to each other (SDK 2.33, "nki.collectives").

Ranks are cores or logical cores of one chip here, each core with a program of its own in one Program. A
collective is recorded when the last core comes to it, as the transfers that every one makes of what its like of
other ranks hold, between two places where all wait. It is priced as these transfers: that the links within a
chip are no slower is assumed, as is that both cores of a rank meet at it, and move once what both name in HBM.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import emit, fail, names_of, transfer
from accelopt.sim.dialects.neuronxcc.isa.checks import endpoint
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.dialects.nki import cores, versions
from accelopt.sim.dialects.nki.call_conventions import call, instruction
from accelopt.sim.dialects.nki.registers import NkiScalar, made
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import movement
from accelopt.sim.program import Buffer
from accelopt.sim.tracer import active, current

COPY_FIRST = "Copy it to HBM or SBUF first."


class rg_partition_op(Enum):
    """How `ReplicaGroup.from_partition_op` finds the list that a rank belongs to."""

    bitwise_and = "bitwise_and"
    div = "div"
    mod = "mod"


class ReplicaGroup:
    """Lists of ranks, each rank in one of them; a collective runs within every list by itself."""

    def __init__(self, groups: Sequence[Sequence[int]]) -> None:
        self.groups = tuple(tuple(int(rank) for rank in group) for group in groups)
        if (tracer := active()) is not None:
            tracer.spoke = True
        ranks = sorted(rank for group in self.groups for rank in group)
        if not ranks or ranks != list(range(len(ranks))):
            said = f"ReplicaGroup({list(map(list, self.groups))}) does not name every rank from 0 on once."
            error = KernelValueError("replica_group", said)
            raise error if active() is None else current().blamed(error)
        if active() is not None:
            cores.ranks(len(ranks))

    @staticmethod
    def from_partition_op(world_size: int, op: rg_partition_op, operand: int) -> ReplicaGroup:
        """The ranks below `world_size` with the same op(rank, operand) in one list."""
        lists: dict[int, list[int]] = {}
        for rank in range(world_size):
            by = {
                "bitwise_and": rank & operand,
                "div": rank // (operand or 1),
                "mod": rank % (operand or 1),
            }
            lists.setdefault(by[op.value], []).append(rank)
        return ReplicaGroup(list(lists.values()))

    def __repr__(self) -> str:
        return f"ReplicaGroup({list(map(list, self.groups))})"


Moves = Callable[[int, Sequence[Any], Any], Iterable[tuple[TensorView, TensorView]]]
"""The transfers of the rank at a place of its group, each into what and of what: from what every rank of the
group gives (a tensor, or several to add) and what this one has for it."""


def _collective(
    name: str, srcs: Any, dsts: Any, group: Any, settings: tuple[object, ...], moves: Moves,
    *, on_chip: bool = False, several: bool = True, by: str = "", each: int = 1, channels: bool = False,
    beside: TensorView | None = None,
) -> None:  # fmt: skip
    """Checks the operands by the page of each (SDK 2.33) and waits for all other ranks; the last one to come
    records what each of them does."""
    current().spoke = True
    if not isinstance(group, ReplicaGroup):
        fail(KernelTypeError("replica_group", f"{group!r} is no nki.collectives.ReplicaGroup."))
    given = [endpoint(one, f"srcs[{n}]", COPY_FIRST) for n, one in enumerate(srcs)]
    taken = [endpoint(one, f"dsts[{n}]", COPY_FIRST) for n, one in enumerate(dsts)]
    inside = {view.on_chip for view in (*given, *taken)}
    if (
        not taken
        or len(given) != each * len(taken)
        or len(inside) > 1
        or (True in inside and not on_chip)
    ):
        memories = "all in HBM or all in SBUF" if on_chip else "in HBM"
        fail(KernelTypeError("collective", f"{name} takes as many srcs as dsts, {memories}."))
    if len(taken) > 1 and not channels and (True in inside or not several):
        fail(KernelTypeError("collective", f"{name} takes one tensor{' in SBUF' * several}."))
    forms = tuple((view.shape, str(view.dtype), view.on_chip) for view in (*given, *taken))
    together = cores.ranks(sum(map(len, group.groups)))
    held = together.meet(cores.Offer(name, (group.groups, settings, forms), (given, taken, beside)))
    if held is None:
        return
    tracer, cores_of = current(), together.cores
    me, srcs_of = tracer.core, {}
    written = {view.storage for _, dsts, _ in held for view in dsts}
    moving = [n for n, side in enumerate(held) if not (n % cores_of and _same(side, held[n - 1]))]
    for tracer.core in moving:
        srcs_of[tracer.core] = [
            _for_others(view, view.storage in written) for view in held[tracer.core][0]
        ]
    _barriers(len(held))
    for tracer.core in moving:
        among = next(ranks for ranks in group.groups if tracer.rank in ranks)
        at = among.index(tracer.rank)
        for n, dst in enumerate(held[tracer.core][1]):
            into = dst if beside is None else (dst, held[tracer.core][2])
            own = [srcs_of[rank * cores_of + tracer.core % cores_of] for rank in among]
            every = [views[n :: len(taken)] for views in own]
            parts = [one if len(one) > 1 else one[0] for one in every]
            for number, (place, source) in enumerate(moves(at, parts, into)):
                _alike(name, place, source)
                transfer(place, source, accumulate=by or None if number else None)
    _barriers(len(held))
    tracer.core = me
    together.go_on()


def _same(one: Any, other: Any) -> bool:
    """Whether both cores of a rank name the same tensors in HBM, which are moved once then."""
    views = [pair for n in (0, 1) for pair in zip(one[n], other[n], strict=True)]
    return all(
        not a.on_chip and a.storage is b.storage and a.access() == b.access() for a, b in views
    )


def _for_others(view: TensorView, written: bool) -> TensorView:
    """What others read of a rank: its tensor, or a copy in HBM of what lies in SBUF or is written meanwhile."""
    if not view.on_chip and not written:
        return view
    return transfer(whole(current().declare(view.shape, view.dtype, Buffer.HBM)), view)


def _barriers(count: int) -> None:
    for current().core in range(count):
        cores.barrier(ranks=count)


def _alike(name: str, one: TensorView, other: TensorView) -> None:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        said = f"{name} has tensors of other shapes or formats: {one!r} and {other!r}."
        fail(KernelValueError("collective", said))


def _parts(
    name: str, of_all: TensorView, part: TensorView, axis: Any, count: int
) -> list[TensorView]:
    """A tensor as the parts of `count` ranks along an axis, each as large as `part`."""
    axis, sides = int(axis), of_all.on_chip and name == "all_gather"
    if axis and not (sides and axis == 1):
        said = f"collective_dim={axis}: {name} of such tensors goes along dimension 0"
        fail(KernelValueError("collective", f"{said}{' or 1' * sides}."))
    wanted = tuple(n * count if at == axis else n for at, n in enumerate(part.shape))
    if of_all.shape != wanted:
        said = (
            f"{name} over {count} ranks has {part!r} of each and {of_all!r} of all, not {wanted}."
        )
        fail(KernelValueError("collective", said))
    step, before = part.shape[axis], (slice(None),) * axis
    places = [slice(n * step, n * step + step) for n in range(count)]
    return [subscript(of_all, (*before, place)) for place in places]


def _by(op: Any) -> str:
    return op_name(op, frozenset({"add", "maximum", "minimum"}))


@instruction
def all_gather(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, priority: Any = None
) -> None:
    """dst = the srcs of the group's ranks, one after another along `collective_dim`."""
    name, axis = "all_gather", int(collective_dim)
    _collective(name, srcs, dsts, replica_group, (axis,),
                lambda at, given, dst: zip(_parts(name, dst, given[at], axis, len(given)), given,
                                           strict=True), on_chip=True)  # fmt: skip


class _Lengths(NamedTuple):
    """A collective of lengths that are known when it runs. `rows` is the metadata of this rank, `read` what its
    rows 0 and 1 said when it was prepared, in HBM; the chunk for the rank at a place of the group is told by the column of
    that place, or by the first where all get the same."""

    name: str
    operands: tuple[Any, Any, ReplicaGroup]
    rows: TensorView
    read: TensorView
    told: bool  # how much came from each rank, in row 2
    by: str  # how what ranks send is combined: in one slot

    def run(self) -> None:
        """Slot s of dst, of as many as there are ranks, begins with what rank s sends; the rest of a slot stays."""

        def moves(at: int, given: Sequence[Any], into: Any) -> Any:
            (dst, rows), slots_of = into, 1 if self.by else len(given)
            slots = dst.reshape((slots_of, math.prod(dst.shape) // slots_of))
            column = slice(0, 1) if self.name == "all_gather_v" else slice(at, at + 1)
            for n, (source, counts) in enumerate(given):
                window = {"source": source, "window": subscript(counts, (slice(0, 2), column))}
                slot, more = (
                    subscript(slots, slice(n % slots_of, n % slots_of + 1)),
                    bool(n and self.by),
                )
                if more:
                    window["like"] = subscript(given[0][1], (slice(0, 2), column))
                emit(movement.DMA_WINDOW, result=slot, inputs=window,
                     attributes={"accumulate": self.by} if more else None)  # fmt: skip
                if self.told:
                    of_chip = (slice(0, 1),) * (rows.ndim - 2)
                    place = subscript(rows, (*of_chip, slice(2, 3), slice(n, n + 1)))
                    yield place, subscript(counts, (slice(0, 1), column)).reshape(place.shape)

        srcs, dsts, group = self.operands
        _collective(self.name, [*srcs, self.read], dsts, group, (self.told, self.by), moves, several=False,
                    each=2, beside=self.rows)  # fmt: skip


def _by_lengths(
    name: str,
    ahead: bool,
    operands: tuple[Any, Any, Any],
    metadata: Any,
    known: bool,
    placed: bool,
    by: str,
) -> None:
    """Checks the metadata and moves, or prepares to."""
    current().spoke = True
    srcs, dsts, group = operands
    rows = endpoint(metadata, "metadata_tensor", COPY_FIRST)
    if placed:
        said = f"{name}: has_rdispls is of ranks on several nodes; without it slots have one size."
        fail(KernelValueError("collective", said))
    ranks = len(group.groups[0]) if isinstance(group, ReplicaGroup) else 0
    forms = [(*(1,) * rows.on_chip, n, ranks) for n in (2, 3, 4)][not known :]
    if rows.dtype != dtypes.UINT32 or rows.shape not in forms:
        said = f"{name} takes uint32 metadata of shape {forms[-2]}, not {rows!r}."
        fail(KernelTypeError("collective", said))
    inputs = subscript(rows, (*(slice(None),) * (rows.ndim - 2), slice(0, 2)))
    read = _for_others(inputs, ahead).reshape((2, ranks))
    told = _Lengths(name, (srcs, dsts, group), rows, read, not known, by)
    if not ahead:
        told.run()
    elif cores.world() and told is not _prepared().setdefault(current().core, told):
        said = f"{name}_prepare comes before the trigger of another one: there is one slot."
        fail(KernelValueError("collective", said))


def _of_lengths(name: str, ahead: bool = False) -> Any:
    def collective(
        srcs: Any, dsts: Any, replica_group: Any, metadata_tensor: Any, recv_counts_known: bool = False,
        has_rdispls: bool = False, priority: Any = None,
    ) -> None:  # fmt: skip
        """Slot s of dst = what rank s sends: to all_gather_v's the chunk that the first column of its metadata
        tells (elements in row 0, from the element of row 1 on), to all_to_all_v's that of the receiver's column.
        Row 2 becomes how much came of each. `_prepare` reads the metadata, `_trigger` moves."""
        operands = (srcs, dsts, replica_group)
        _by_lengths(name, ahead, operands, metadata_tensor, recv_counts_known, has_rdispls, "")

    def reduction(
        srcs: Any, dsts: Any, replica_group: Any, metadata_tensor: Any, op: Any, recv_counts_known: bool = False,
        has_rdispls: bool = False, priority: Any = None,
    ) -> None:  # fmt: skip
        """The first elements of dst = the sum, the largest or the smallest of what each rank sends to this one, as
        many of each. No page of it was to be had: what it takes and does is assumed to be all_to_all_v's, with
        `op` where reduce_scatter has it (the runtime's ReduceScatterV, SDK 2.32)."""
        operands = (srcs, dsts, replica_group)
        _by_lengths(name, ahead, operands, metadata_tensor, recv_counts_known, has_rdispls, _by(op))

    made = reduction if name == "reduce_scatter_v" else collective
    made.__name__ = f"{name}{'_prepare' * ahead}"
    return instruction(made)


def _trigger(name: str) -> Any:
    def trigger(prepare_instr: Any) -> None:
        """The collective that was prepared."""
        told = _prepared().pop(current().core, None) if cores.world() else None
        if told is None or told.name != name:
            fail(KernelValueError("collective", f"{name}_trigger follows no {name}_prepare."))
        told.run()

    trigger.__name__ = f"{name}_trigger"
    return instruction(trigger)


def _prepared() -> dict[int, Any]:
    return current().pair.prepared  # type: ignore[attr-defined, no-any-return]


_V = ("all_gather_v", "all_to_all_v", "reduce_scatter_v")
all_gather_v, all_to_all_v, reduce_scatter_v = map(_of_lengths, _V)
all_gather_v_prepare, all_to_all_v_prepare, reduce_scatter_v_prepare = (
    _of_lengths(name, True) for name in _V
)
all_gather_v_trigger, all_to_all_v_trigger, reduce_scatter_v_trigger = map(_trigger, _V)


@instruction
def reduce_scatter(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, op: Any, priority: Any = None
) -> None:
    """dst = the rank's part of the sum, the largest or the smallest of the srcs of its group."""
    name, axis = "reduce_scatter", int(collective_dim)
    _collective(name, srcs, dsts, replica_group, (axis,),
                lambda at, given, dst: [(dst, _parts(name, one, dst, axis, len(given))[at])
                                        for one in given],
                on_chip=True, by=_by(op))  # fmt: skip


@instruction
def all_reduce(srcs: Any, dsts: Any, replica_group: Any, op: Any, priority: Any = None) -> None:
    """dst = the sum, the largest or the smallest of the srcs of the group's ranks."""
    _collective("all_reduce", srcs, dsts, replica_group, (),
                lambda at, given, dst: [(dst, one) for one in given],
                on_chip=True, by=_by(op))  # fmt: skip


@instruction
def all_to_all(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, priority: Any = None
) -> None:
    """Part n of dst = the rank's own part of the src of rank n."""
    name, axis = "all_to_all", int(collective_dim)

    def moves(at: int, given: Sequence[Any], dst: TensorView) -> Any:
        one = subscript(dst, slice(0, max(dst.shape[0] // len(given), 1)))
        parts = [_parts(name, view, one, axis, len(given)) for view in (dst, *given)]
        return zip(parts[0], (own[at] for own in parts[1:]), strict=True)

    _collective(name, srcs, dsts, replica_group, (axis,), moves)


@instruction
def collective_permute(
    srcs: Any, dsts: Any, source_target_pairs: Any, priority: Any = None
) -> None:
    """dst of the target of every pair = src of its source; who is no target keeps what dst holds."""
    current().spoke = True
    pairs = tuple((int(source), int(target)) for source, target in source_target_pairs)
    if len({target for _, target in pairs}) < len(pairs):
        fail(KernelValueError("collective", f"two sources of {list(pairs)} have the same target."))
    group = ReplicaGroup(
        [range(max(cores.world(), *(1 + rank for pair in pairs for rank in pair)))]
    )
    _collective("collective_permute", srcs, dsts, group, pairs,
                lambda at, given, dst: [(dst, given[one]) for one, to in pairs if to == at],
                several=False)  # fmt: skip


def _ring(name: str, srcs: Sequence[Any], dsts: Any, group: Any, channels: Any, by: str) -> None:
    """Every rank's sources, added where there are two, into the destination of its successor."""
    if any(len(tensors) != 1 for tensors in (*srcs, *dsts)):
        fail(KernelTypeError("collective", f"{name} takes one tensor a channel."))
    _collective(name, [one[0] for one in srcs], [one[0] for one in dsts], group,
                tuple(map(int, channels)),
                lambda at, given, dst: [(dst, one) for one in (given[at - 1] if by else [given[at - 1]])],
                on_chip=True, by=by, each=1 + bool(by), channels=True)  # fmt: skip


@instruction
def collective_permute_implicit(
    srcs_by_channel: Any, dsts_by_channel: Any, replica_group: Any, channel_ids: Any = (0,),
    priority: Any = None,
) -> None:  # fmt: skip
    """dst of the next rank in the ring of the group = src."""
    name = "collective_permute_implicit"
    _ring(name, srcs_by_channel, dsts_by_channel, replica_group, channel_ids, "")


@instruction
def collective_permute_implicit_reduce(
    srcs0_by_channel: Any, srcs1_by_channel: Any, dsts_by_channel: Any, replica_group: Any, op: Any,
    channel_ids: Any = (0,), priority: Any = None,
) -> None:  # fmt: skip
    """dst of the next rank in the ring of the group = op(src0, src1)."""
    name, srcs = "collective_permute_implicit_reduce", (*srcs0_by_channel, *srcs1_by_channel)
    _ring(name, srcs, dsts_by_channel, replica_group, channel_ids, _by(op))


@call
def collective_permute_implicit_current_processing_rank_id(
    iteration_id: Any, replica_group: Any, channel_id: Any = 0, num_channels: Any = 1
) -> NkiScalar:
    """The rank whose data has come to this one after so many steps around the ring."""
    cores.ranks(sum(map(len, replica_group.groups)))
    ring = next(ranks for ranks in replica_group.groups if current().rank in ranks)
    at = ring.index(current().rank) - int(iteration_id)
    return NkiScalar(made(ring[at % len(ring)]).tile)


@call
def rank_id() -> NkiScalar:
    """The number of this rank."""
    cores.world()
    return NkiScalar(made(current().rank).tile)


_CALLS = names_of(sys.modules[__name__])
globals().update(versions.changed("nki.collectives", _CALLS))
__all__ = ["ReplicaGroup", "rg_partition_op", *_CALLS]
__getattr__ = absent_names("nki.collectives", {})
