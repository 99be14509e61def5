"""nki.collectives: what the ranks of one launch pass to each other (SDK 2.33, "nki.collectives").

Ranks are cores of one chip here, each with a program of its own in one Program. A collective is recorded when
the last rank comes to it, as the transfers that every rank makes of what the others hold, between two places
where all ranks wait. It is priced as these transfers: that the links within a chip are no slower is assumed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

from accelopt.sim.dialects.neuronxcc.absent import absent_names
from accelopt.sim.dialects.neuronxcc.builder import calls_of, fail, transfer
from accelopt.sim.dialects.neuronxcc.isa.checks import endpoint
from accelopt.sim.dialects.neuronxcc.subscript import subscript
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.dialects.neuronxcc.tokens import op_name
from accelopt.sim.dialects.nki import cores
from accelopt.sim.dialects.nki.call_conventions import call, instruction
from accelopt.sim.dialects.nki.registers import NkiScalar, made
from accelopt.sim.errors import KernelTypeError, KernelValueError
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


Move = tuple[TensorView, TensorView, bool]
"""One transfer of a rank: into what, of what, and whether it adds."""
Moves = Callable[[int, Sequence[int], Sequence["Side"]], Iterator[Move]]
"""Those of the rank at a place of its group, with what every rank of the group holds."""


class Side(NamedTuple):
    """What one rank brings to a collective: lists of tensors, alike in number, form and memory."""

    srcs: tuple[TensorView, ...]
    dsts: tuple[TensorView, ...]
    more: tuple[TensorView, ...] = ()


def _side(
    name: str, srcs: Any, dsts: Any, more: Any = (), *, on_chip: bool, several: bool = True
) -> Side:
    """The operands of a collective, checked by the page of each (SDK 2.33)."""
    lists = [[endpoint(t, f"{word}[{n}]", COPY_FIRST) for n, t in enumerate(given)]
             for word, given in (("srcs", srcs), ("dsts", dsts), ("srcs1", more))]  # fmt: skip
    every = [view for given in lists for view in given]
    chips = {view.on_chip for view in every}
    if (
        len(lists[0]) != len(lists[1])
        or not every
        or len(chips) > 1
        or (True in chips and not on_chip)
    ):
        memories = "all in HBM or all in SBUF" if on_chip else "in HBM"
        said = f"{name} takes as many srcs as dsts, {memories}."
        fail(KernelTypeError("collective", said))
    if len(lists[0]) > 1 and (True in chips or not several):
        fail(KernelTypeError("collective", f"{name} takes one tensor{' in SBUF' * several}."))
    return Side(*map(tuple, lists))


def _parts(
    name: str, whole_one: TensorView, part: TensorView, axis: Any, count: int
) -> list[TensorView]:
    """A tensor as the parts of `count` ranks along an axis, each as large as `part`."""
    axis = int(axis)
    if axis and not (whole_one.on_chip and axis == 1 and name == "all_gather"):
        said = f"collective_dim={axis}: {name} of such tensors goes along dimension 0"
        fail(
            KernelValueError(
                "collective", f"{said}{' or 1' * whole_one.on_chip * (name == 'all_gather')}."
            )
        )
    wanted = tuple(n * count if at == axis else n for at, n in enumerate(part.shape))
    if whole_one.shape != wanted or whole_one.dtype != part.dtype:
        said = f"{name} over {count} ranks has {part!r} of each and {whole_one!r} of all, not {wanted}."
        fail(KernelValueError("collective", said))
    step = part.shape[axis]
    before = (slice(None),) * axis
    return [subscript(whole_one, (*before, slice(n * step, n * step + step))) for n in range(count)]


def _alike(name: str, *views: TensorView) -> None:
    if len({(view.shape, view.dtype) for view in views}) > 1:
        said = f"{name} has tensors of other shapes or formats: {', '.join(map(repr, views))}."
        fail(KernelValueError("collective", said))


def _met(name: str, group: Any, side: Side, settings: tuple[object, ...], moves: Moves) -> None:
    """Waits for all other ranks; the last one records what each of them does."""
    if not isinstance(group, ReplicaGroup):
        fail(KernelTypeError("replica_group", f"{group!r} is no nki.collectives.ReplicaGroup."))
    forms = tuple((view.shape, str(view.dtype), view.on_chip) for part in side for view in part)
    sides = cores.ranks(sum(map(len, group.groups))).meet(
        cores.Offer(name, (group.groups, settings, forms), side)
    )
    if sides is None:
        return
    tracer = current()
    me, held = tracer.core, list(sides)
    for rank, own in enumerate(held):  # what lies in SBUF is read by others from HBM
        tracer.core = rank
        held[rank] = own._replace(
            srcs=tuple(map(_in_hbm, own.srcs)), more=tuple(map(_in_hbm, own.more))
        )
    _barriers(len(held))
    for ranks in group.groups:
        for at, rank in enumerate(ranks):
            tracer.core = rank
            for into, source, adds in moves(at, ranks, [held[one] for one in ranks]):
                transfer(into, source, accumulate="add" if adds else None)
    _barriers(len(held))
    tracer.core = me


def _in_hbm(view: TensorView) -> TensorView:
    if not view.on_chip:
        return view
    return transfer(whole(current().declare(view.shape, view.dtype, Buffer.HBM)), view)


def _barriers(count: int) -> None:
    for rank in range(count):
        current().core = rank
        cores.barrier(ranks=count)


def _added(into: TensorView, sources: Sequence[TensorView]) -> Iterator[Move]:
    yield from ((into, source, bool(number)) for number, source in enumerate(sources))


def _adds(name: str, op: Any) -> None:
    if op_name(op, frozenset({"add", "maximum", "minimum"})) != "add":
        said = f"{name} by nl.{op_name(op, frozenset({'maximum', 'minimum'}))}: the DMAs of the simulated core add only."
        fail(KernelValueError("collective", said, "Gather, and reduce on an engine."))


@instruction
def all_gather(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, priority: Any = None
) -> None:
    """dst = the srcs of the group's ranks, one after another along `collective_dim`."""
    side = _side("all_gather", srcs, dsts, on_chip=True)

    def moves(at: int, ranks: Sequence[int], sides: Sequence[Side]) -> Iterator[Move]:
        for n, dst in enumerate(sides[at].dsts):
            parts = _parts("all_gather", dst, sides[at].srcs[n], collective_dim, len(ranks))
            yield from (
                (part, other.srcs[n], False) for part, other in zip(parts, sides, strict=True)
            )

    _met("all_gather", replica_group, side, (int(collective_dim),), moves)


@instruction
def reduce_scatter(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, op: Any, priority: Any = None
) -> None:
    """dst = the rank's part of the sum of the srcs of its group."""
    side = _side("reduce_scatter", srcs, dsts, on_chip=True)
    _adds("reduce_scatter", op)

    def moves(at: int, ranks: Sequence[int], sides: Sequence[Side]) -> Iterator[Move]:
        for n, dst in enumerate(sides[at].dsts):
            split = [
                _parts("reduce_scatter", s.srcs[n], dst, collective_dim, len(ranks))[at]
                for s in sides
            ]
            yield from _added(dst, split)

    _met("reduce_scatter", replica_group, side, (int(collective_dim),), moves)


@instruction
def all_reduce(srcs: Any, dsts: Any, replica_group: Any, op: Any, priority: Any = None) -> None:
    """dst = the sum of the srcs of the group's ranks."""
    side = _side("all_reduce", srcs, dsts, on_chip=True)
    _adds("all_reduce", op)

    def moves(at: int, ranks: Sequence[int], sides: Sequence[Side]) -> Iterator[Move]:
        for n, dst in enumerate(sides[at].dsts):
            _alike("all_reduce", dst, *(one.srcs[n] for one in sides))
            yield from _added(dst, [one.srcs[n] for one in sides])

    _met("all_reduce", replica_group, side, (), moves)


@instruction
def all_to_all(
    srcs: Any, dsts: Any, replica_group: Any, collective_dim: Any, priority: Any = None
) -> None:
    """Part n of dst = the rank's own part of the src of rank n."""
    side = _side("all_to_all", srcs, dsts, on_chip=False)

    def moves(at: int, ranks: Sequence[int], sides: Sequence[Side]) -> Iterator[Move]:
        for n, dst in enumerate(sides[at].dsts):
            _alike("all_to_all", dst, sides[at].srcs[n])
            one = subscript(dst, slice(0, dst.shape[0] // len(ranks)))
            parts = _parts("all_to_all", dst, one, collective_dim, len(ranks))
            given = [
                _parts("all_to_all", s.srcs[n], one, collective_dim, len(ranks))[at] for s in sides
            ]
            yield from ((part, source, False) for part, source in zip(parts, given, strict=True))

    _met("all_to_all", replica_group, side, (int(collective_dim),), moves)


@instruction
def collective_permute(
    srcs: Any, dsts: Any, source_target_pairs: Any, priority: Any = None
) -> None:
    """dst of the target of every pair = src of its source; who is no target keeps what dst holds."""
    side = _side("collective_permute", srcs, dsts, on_chip=False, several=False)
    pairs = tuple((int(source), int(target)) for source, target in source_target_pairs)
    count = 1 + max(rank for pair in pairs for rank in pair)
    if len({target for _, target in pairs}) < len(pairs):
        fail(KernelValueError("collective", f"two sources of {list(pairs)} have the same target."))

    def moves(at: int, ranks: Sequence[int], sides: Sequence[Side]) -> Iterator[Move]:
        for source in (source for source, target in pairs if target == at):
            _alike("collective_permute", sides[at].dsts[0], sides[source].srcs[0])
            yield sides[at].dsts[0], sides[source].srcs[0], False

    world = max(count, cores.world())
    _met("collective_permute", ReplicaGroup([range(world)]), side, pairs, moves)


def _ring(name: str, given: Sequence[Any], replica_group: Any, channel_ids: Any) -> None:
    """Every rank's sources, added where there are two, into the destination of its successor."""
    if any(len(tensors) != 1 for by_channel in given for tensors in by_channel):
        fail(KernelTypeError("collective", f"{name} takes one tensor a channel."))
    flat = [[tensors[0] for tensors in by_channel] for by_channel in given]
    side = _side(name, flat[0], flat[-1], flat[1] if len(flat) == 3 else (), on_chip=False)

    def moves(at: int, ranks: Sequence[int], sides: Sequence[Side]) -> Iterator[Move]:
        before = sides[at - 1]
        for n, dst in enumerate(sides[at].dsts):
            sources = [before.srcs[n], *before.more[n : n + 1]]
            _alike(name, dst, *sources)
            yield from _added(dst, sources)

    _met(name, replica_group, side, tuple(map(int, channel_ids)), moves)


@instruction
def collective_permute_implicit(
    srcs_by_channel: Any, dsts_by_channel: Any, replica_group: Any, channel_ids: Any = (0,),
    priority: Any = None,
) -> None:  # fmt: skip
    """dst of the next rank in the ring of the group = src."""
    _ring(
        "collective_permute_implicit",
        (srcs_by_channel, dsts_by_channel),
        replica_group,
        channel_ids,
    )


@instruction
def collective_permute_implicit_reduce(
    srcs0_by_channel: Any, srcs1_by_channel: Any, dsts_by_channel: Any, replica_group: Any, op: Any,
    channel_ids: Any = (0,), priority: Any = None,
) -> None:  # fmt: skip
    """dst of the next rank in the ring of the group = src0 + src1."""
    name = "collective_permute_implicit_reduce"
    _adds(name, op)
    _ring(name, (srcs0_by_channel, srcs1_by_channel, dsts_by_channel), replica_group, channel_ids)


def _scalar(value: int) -> NkiScalar:
    return NkiScalar(made(value).tile)


@call
def collective_permute_implicit_current_processing_rank_id(
    iteration_id: Any, replica_group: Any, channel_id: Any = 0, num_channels: Any = 1
) -> NkiScalar:
    """The rank whose data has come to this one after so many steps around the ring."""
    cores.ranks(sum(map(len, replica_group.groups)))
    ring = next(ranks for ranks in replica_group.groups if current().core in ranks)
    return _scalar(ring[(ring.index(current().core) - int(iteration_id)) % len(ring)])


@call
def rank_id() -> NkiScalar:
    """The number of this rank."""
    cores.world()
    return _scalar(current().core)


_CALLS = calls_of(sys.modules[__name__])
__all__ = ["ReplicaGroup", "rg_partition_op", *_CALLS]

__getattr__ = absent_names(
    "nki.collectives",
    {
        "all_gather_v all_to_all_v reduce_scatter_v all_gather_v_prepare all_gather_v_trigger "
        "all_to_all_v_prepare all_to_all_v_trigger reduce_scatter_v_prepare reduce_scatter_v_trigger": "How "
        "many elements it moves is known at run time only: use the form of fixed length on the CPU.",
    },
)
