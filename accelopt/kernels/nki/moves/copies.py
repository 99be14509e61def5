"""Moves that drop copies and repeated loads."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Option, Site
from accelopt.kernels.nki.moves.places import path_text
from accelopt.kernels.nki.moves.reading.legality import uses_of
from accelopt.kernels.nki.moves.reading.reader import Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import (
    ParsedKernel,
    SourceLoop,
    SourceNode,
    SourceStatement,
    StatementPath,
    code_of,
    parts,
)
from accelopt.kernels.nki.moves.reading.values import (
    KernelTensor,
    KnownCall,
    KnownConstant,
    TileUse,
)
from accelopt.kernels.nki.moves.surgery.rewriting import tidy, with_expression

# Instructions of Vector, Scalar and GpSimd engine read PSUM as well as SBUF.
READS_PSUM = frozenset(
    "nisa.activation nisa.tensor_scalar nisa.tensor_tensor nisa.tensor_reduce nl.add nl.subtract "
    "nl.multiply nl.divide nl.maximum nl.minimum nl.exp nl.square nl.sqrt nl.rsqrt nl.silu "
    "nl.sigmoid nl.copy nisa.tensor_copy nisa.reciprocal nisa.activation_reduce nl.sum nl.max".split()
)
TWO_TENSORS = frozenset("nisa.tensor_tensor nl.add nl.subtract nl.multiply nl.divide".split())


class DropCopy:
    """Let the reader of a copy read the original.

    before: t = nl.copy(acc); y = nl.add(t, z)
    after:  y = nl.add(acc, z)

    Drops PSUM evictions that only feed an elementwise instruction, and copies inside SBUF. Legal when
    the copy changes no dtype, every reader is an elementwise instruction in the same loops that may
    read the original's memory, and the original still holds.
    """

    name = "drop_copy"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every copy all of whose readers could do without it."""
        reading = read(kernel)
        for statement in reading.statements:
            source = _copied(statement)
            if source is None:
                continue
            try:
                readers = _readers(reading, statement)
            except IllegalMove:
                continue
            numbers = ", ".join(str(r.line.number) for r in readers)
            text = (
                f"Drop the copy {_name(statement)} in line {statement.line.number} and let line "
                f"{numbers} read the original."
            )
            site = Site(self.name, {"at": path_text(statement.path)}, text)
            yield Option(site, partial(_without_copy, kernel, statement, source, readers))


class ReuseLoad:
    """Use a tile that was loaded before instead of loading the same part of HBM again.

    before: a = nl.load(x[m, p, f]); ...; b = nl.load(x[m, p, f]); g(b)
    after:  a = nl.load(x[m, p, f]); ...; g(a)

    Legal when both loads read the same part in the same iteration, nothing writes the first tile or
    the HBM tensor, and both have the same dtype and mask.
    """

    name = "reuse_load"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every load that repeats an earlier one."""
        reading = read(kernel)
        for later in reading.statements:
            earlier = _same_load(reading, later)
            if earlier is None:
                continue
            text = (
                f"Use {_name(earlier)} (loaded in line {earlier.line.number}) in place of "
                f"{_name(later)}: line {later.line.number} loads the same part of HBM again."
            )
            site = Site(self.name, {"at": path_text(later.path)}, text)
            yield Option(site, partial(_without_load, kernel, earlier, later))


def _without_copy(
    kernel: ParsedKernel, statement: ReadStatement, source: TileUse, readers: list[ReadStatement]
) -> ParsedKernel:
    changes: dict[StatementPath, SourceStatement] = {}
    made = _tensor(statement)
    for reader in readers:
        nodes: dict[cst.CSTNode, cst.CSTNode] = {
            a.node: source.node.deep_clone() for a in reader.reads if a.tensor is made
        }
        changes[reader.path] = with_expression(reader.line, nodes)
    return tidy(_with_lines(kernel, changes))


def _without_load(
    kernel: ParsedKernel, earlier: ReadStatement, later: ReadStatement
) -> ParsedKernel:
    old, new = _tensor(later), _tensor(earlier)
    assert old is not None and new is not None

    def visit(nodes: tuple[SourceNode, ...], prefix: StatementPath) -> list[SourceNode]:
        result: list[SourceNode] = []
        for position, node in enumerate(nodes):
            path = (*prefix, position)
            if path in {later.path, old.path}:
                continue
            if isinstance(node, SourceLoop):
                result.append(SourceLoop(node.node, tuple(visit(node.body, path)), node.number))
            else:
                renamed = node.node.visit(_Renamed(old.name, new.name))
                result.append(SourceStatement(renamed, node.number))  # type: ignore[arg-type]
        return result

    return tidy(kernel.with_body(visit(kernel.body, ())))


class _Renamed(cst.CSTTransformer):
    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        return (
            updated_node.with_changes(value=self.new)
            if original_node.value == self.old
            else updated_node
        )


def _copied(statement: ReadStatement) -> TileUse | None:
    """What a plain copy copies."""
    call = statement.call
    if statement.opaque or statement.accumulates or call is None or _masked(call):
        return None
    if call.name not in {"nl.copy", "nisa.tensor_copy"} or statement.kind != "compute":
        return None
    source, made = call.access("src"), _tensor(statement)
    if source is None or made is None or source.tensor.dtype != made.dtype or made.dtype is None:
        return None
    if source.dims is None or _shifts_partitions(source):
        return None
    return None if source.tensor.buffer == "hbm" else source


def _shifts_partitions(source: TileUse) -> bool:
    """True when a copy brings data from other partitions down to the first one, which two operands
    of one instruction must share."""
    assert source.dims is not None
    partition = source.dims[source.tensor.block_rank]
    return bool(partition.without(*partition.ramps).terms)


def _readers(reading: Reading, statement: ReadStatement) -> list[ReadStatement]:
    """Who reads a copy; raises IllegalMove when one of them needs it."""
    source, made = _copied(statement), _tensor(statement)
    assert source is not None and made is not None
    if made.fill is not None or len(_computes(reading, made)) != 1:
        raise IllegalMove(f"{made.name} is written more than once")
    readers = reading.readers(made)
    if not readers:
        raise IllegalMove(f"nobody reads {made.name}")
    for reader in readers:
        _check_reader(reading, statement, source, made, reader)
    return readers


def _check_reader(
    reading: Reading,
    statement: ReadStatement,
    source: TileUse,
    made: KernelTensor,
    reader: ReadStatement,
) -> None:
    number = reader.line.number
    if reader.opaque or reader.kind != "compute" or reader.path < statement.path:
        raise IllegalMove(f"line {number} needs the copy")
    if reader.loops != statement.loops:
        raise IllegalMove(f"line {number} runs in another loop")
    for access in reader.reads:
        if access.tensor is not made:
            continue
        same = access.whole if statement.target is None else statement.target.same_part(access)
        if not same or access.view:
            raise IllegalMove(f"line {number} reads only a part of {made.name}")
    for call in _calls(reading, reader):
        users = [v for v in call.values.values() if getattr(v, "access", None) is not None]
        uses = [v for v in users if v.access.tensor is made]  # type: ignore[union-attr]
        if not uses:
            continue
        if call.name not in READS_PSUM:
            raise IllegalMove(f"{call.name} in line {number} does not read {source.tensor.buffer}")
        in_psum = [v for v in users if v.access.tensor.buffer == "psum"]  # type: ignore[union-attr]
        if source.tensor.buffer == "psum" and call.name in TWO_TENSORS and in_psum:
            raise IllegalMove(f"line {number} would read two tiles of PSUM")
    if any(isinstance(n, cst.BinaryOperation) for n in reading.values) and (
        reader.value in reading.values and isinstance(reader.value, cst.BinaryOperation)
    ):
        raise IllegalMove(f"line {number} is an operator expression")
    for writer in reading.writers(source.tensor.storage):
        if statement.path < writer.path < reader.path:
            raise IllegalMove(f"{source.tensor.name} is written before line {number}")


def _calls(reading: Reading, statement: ReadStatement) -> list[KnownCall]:
    return [reading.calls[part] for part in parts(statement.line.node) if part in reading.calls]


def _same_load(reading: Reading, later: ReadStatement) -> ReadStatement | None:
    """An earlier load of the same part that still holds where the later one stands."""
    source = _loaded(later)
    if source is None or source.dims is None or not _alone(reading, later):
        return None
    if any(s for s, a in uses_of(reading, source.tensor) if a in s.writes):
        return None
    for earlier in reading.statements:
        other = _loaded(earlier)
        if earlier.path >= later.path:
            return None
        if other is None or not source.same_part(other) or not _alone(reading, earlier):
            continue
        old, new = _tensor(later), _tensor(earlier)
        assert old is not None and new is not None and later.call and earlier.call
        if old.dtype != new.dtype or old.shape != new.shape or old.buffer != new.buffer:
            continue
        if old.block_rank != new.block_rank or later.loops[: len(earlier.loops)] != earlier.loops:
            continue
        if _mask(later.call) != _mask(earlier.call) or (later.target is None) != (
            earlier.target is None
        ):
            continue
        if later.target and earlier.target and later.target.dims != earlier.target.dims:
            continue
        return earlier
    return None


def _alone(reading: Reading, statement: ReadStatement) -> bool:
    """True when a load is the only thing that ever writes its tile."""
    tensor = _tensor(statement)
    return tensor is not None and _computes(reading, tensor) == [statement] and not tensor.fill


def _loaded(statement: ReadStatement) -> TileUse | None:
    call = statement.call
    if call is None or call.name != "nl.load" or statement.opaque or statement.accumulates:
        return None
    return call.access("src") if statement.value is call.node else None


def _computes(reading: Reading, tensor: KernelTensor) -> list[ReadStatement]:
    return [s for s in reading.writers(tensor) if s.kind == "compute"]


def _tensor(statement: ReadStatement) -> KernelTensor | None:
    return statement.result or (statement.target.tensor if statement.target else None)


def _name(statement: ReadStatement) -> str:
    tensor = _tensor(statement)
    return tensor.name if tensor else "a tile"


def _masked(call: KnownCall) -> bool:
    return call.values.get("mask", KnownConstant(None)) != KnownConstant(None)


def _mask(call: KnownCall) -> str:
    return code_of(call.arguments["mask"]) if _masked(call) else ""


def _with_lines(
    kernel: ParsedKernel, changes: dict[StatementPath, SourceStatement]
) -> ParsedKernel:
    for path, changed in changes.items():
        kernel = kernel.replaced(path, [changed])
    return kernel
