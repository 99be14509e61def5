"""Prices of many nests of one Algorithm in closed form: a stage that is as in a nest before is not written again."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from accelopt.algorithm.ir import Algorithm, arrays_read
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.nests.axis_positions import FreeNames
from accelopt.kernels.nki.nests.emission import Emitter
from accelopt.kernels.nki.nests.lowering import FAULTS, Interface, emitted
from accelopt.kernels.nki.nests.nest import Nest, NotNested, ReadAfterChange, Stage
from accelopt.kernels.nki.nests.statements import NestNode, Price, price
from accelopt.kernels.nki.nests.text import Writer
from accelopt.kernels.nki.nests.value_graphs import Reading
from accelopt.sim.dialects.dialect import Dialect

MOST_WRITTEN = 100_000
"""Statements of all nests of a search: a minute's work."""
BY_MEMBER = (
    "ways", "contracted", "streamed", "resident", "engines", "beside", "spread", "turned",
)  # fmt: skip
"""Fields of a nest whose entries begin with the definition that they are about."""
TOGETHER = (
    "appended", "repeated", "shared", "brought", "splits", "inlined", "accumulated", "diagonals", "along_free",
)  # fmt: skip
"""Fields of a nest that say what the definitions are."""


class Priced(NamedTuple):
    """What a nest costs, and what tells its kernel from others."""

    price: Price
    text: tuple[str, ...]


@dataclass
class _Written:
    """A stage: its statements, and what it leaves for later stages; or why there are none."""

    nodes: list[NestNode] = field(default_factory=list)
    text: str = ""
    left: tuple[dict[str, Any], ...] = ()
    gone: tuple[str, ...] = ()
    refusal: Exception | None = None


class Prices:
    """Nests of one Algorithm, each written once."""

    def __init__(
        self, algorithm: Algorithm, target: str, dialect: Dialect = "neuronxcc",
        interface: Interface = Interface(),  # noqa: B008  (immutable)
    ) -> None:  # fmt: skip
        self.algorithm = algorithm
        self.target = target
        self.dialect = dialect
        self.interface = interface
        self.readings: dict[object, tuple[Algorithm, Reading]] = {}
        self.found: dict[Nest, Priced | NotNested] = {}
        self.stages: dict[object, _Written] = {}
        self.prices: dict[tuple[str, ...], Price] = {}
        self.written = 0
        """Statements, in all."""

    def has_kernel(self, nest: Nest) -> bool:
        """Whether a nest has a kernel."""
        try:
            self.of(nest)
        except NotNested:
            return False
        return True

    def of(self, nest: Nest) -> Priced:
        """What a nest costs. Raises NotNested for one without a kernel, as `lower_nest` does."""
        if nest not in self.found:
            try:
                if self.written > MOST_WRITTEN:
                    raise NotNested("too many statements were written to find a nest of it")
                self.found[nest] = self._made(nest)
            except NotNested as refusal:
                self.found[nest] = refusal
        found = self.found[nest]
        if isinstance(found, NotNested):
            raise found
        return found

    def _made(self, nest: Nest) -> Priced:
        _, stages = emitted(
            self.algorithm,
            nest,
            self.interface,
            self.target,
            self.dialect,
            self._stages,
            self._reading,
        )
        overlapping = (stage.members[0] for stage in nest.stages if stage.overlaps)
        text = (*(stage.text for stage in stages), *overlapping)
        if text not in self.prices:
            nodes = [node for stage in stages for node in stage.nodes]
            self.prices[text] = price(nodes, TARGETS[self.target])
        return Priced(self.prices[text], text)

    def _reading(self, algorithm: Algorithm, by_ones: frozenset[str]) -> Reading:
        """The meanings of definitions, each of which is found once."""
        key = (*map(id, algorithm.definitions), by_ones)
        if key not in self.readings:
            self.readings[key] = algorithm, Reading(algorithm, by_ones)
        made = copy.copy(self.readings[key][1])
        made.uses = dict(made.uses)
        return made

    def _stages(self, emitter: Emitter) -> list[_Written]:
        if emitter.nest.cores:  # what a stage waits for depends on all before it
            nodes = emitter.emit()
            return [_Written(nodes, "\n".join(map(repr, nodes)))]
        made, taken = list[_Written](), emitter.names.taken
        for stage in emitter.nest.stages:
            key = self._key(emitter, stage)
            if key not in self.stages:
                before = emitter.written
                self.stages[key] = _written(emitter, stage, taken)
                self.written += emitter.written - before
            found = self.stages[key]
            if found.refusal:
                raise found.refusal
            for into, left in zip(_shared(emitter), found.left, strict=True):
                into.update(left)
            for name in found.gone:
                emitter.memory.unmade.pop(name, None)
            made.append(found)
        return made

    def _key(self, emitter: Emitter, stage: Stage) -> object:
        """All that the statements of a stage depend on."""
        nest, own = emitter.nest, {*stage.members}
        arrays = sorted(
            own.union(*(arrays_read(d) for d in map(emitter.definitions.__getitem__, own)))
        )
        held = emitter.on_chip.held
        stored = map(emitter.memory.stored_name, arrays)
        return (
            stage.but(overlaps=False), emitter.in_parts, tuple(emitter.in_place.items()),
            tuple(getattr(nest, name) for name in TOGETHER),
            tuple(tuple(e for e in getattr(nest, name) if e[0] in own) for name in BY_MEMBER),
            tuple((a, a in nest.held, emitter.margins.get(a), a in held and held[a].lies)
                  for a in arrays),
            tuple((a in emitter.arrays, a in emitter.memory.unmade) for a in stored),
            sum(one.tile.width for one in held.values()) if own & {*nest.held} else 0,
        )  # fmt: skip


def _shared(emitter: Emitter) -> tuple[dict[str, Any], ...]:
    """What stages leave for later ones."""
    return emitter.arrays, emitter.outside, emitter.on_chip.held, emitter.memory.unmade


def _written(emitter: Emitter, stage: Stage, taken: Iterable[str]) -> _Written:
    """A stage alone, with names as if no other was written."""
    emitter.names = FreeNames({*taken, *emitter.outside.values()})
    emitter.text = Writer(emitter.text.dialect, emitter.names, emitter.text.given)
    emitter.blocks[0].nodes = []
    before = [dict(of) for of in _shared(emitter)]
    try:
        emitter.emit_stage(stage)
    except (NotNested, ReadAfterChange, *FAULTS) as refusal:
        return _Written(refusal=refusal)
    left = [
        {name: made for name, made in of.items() if name not in old}
        for of, old in zip(_shared(emitter), before, strict=True)
    ]
    gone = before[-1].keys() - emitter.memory.unmade.keys()
    nodes = [*emitter.text.first, *emitter.blocks[0].nodes]
    return _Written(nodes, "\n".join(map(repr, nodes)), tuple(left), tuple(gone))
