"""The knobs of an NKI kernel: primitives of a nest that have values. A kernel that does not lift has none.

A knob's values go from the least demanding to the most; its default is what closed forms prefer, or
what leaves the kernel as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from accelopt.kernels.language import Configured
from accelopt.kernels.nki.nests.lowering import Lowered
from accelopt.kernels.nki.nests.nest import Nest, NotNested
from accelopt.kernels.nki.nests.primitives import Columns, Keep, Orient, Primitive, Tile, changed
from accelopt.kernels.nki.nests.primitives import neighbours as primitives_near
from accelopt.kernels.nki.nests.search import described, with_columns
from accelopt.kernels.nki.rescheduling.any_rows import authored
from accelopt.kernels.nki.rescheduling.lifted_kernel import Lifted
from accelopt.knob_space import Configuration, KnobSpec, Parameter, Space

MOST_STARTS = 4  # nests that knobs begin with, of those that differ in more than columns
FAR = 10.0  # times the price of the cheapest nest, beyond which none is worth a kernel
START, OPEN = "start", "open"
BEGINNING = "The nest to begin with; the other knobs are those of 0, and another may refuse them."
RISING = ("HBM", "SBUF", "resident")
"""Places of operands, by the SBUF that they take; of other words the order is kept."""


class NestKnobs:
    """Which of the `cheapest` nests a kernel begins with, and the values of the primitives that change the
    first of them; a primitive that has its usual value is left out."""

    def __init__(
        self, lifted: Lifted, cheapest: Sequence[tuple[Nest, Lowered]], target: str
    ) -> None:
        self.lifted = lifted
        self.target = target
        self._least = cheapest[0][1].price.ms
        families: dict[Nest, Nest] = {}
        for nest, _ in cheapest:
            families.setdefault(with_columns(nest, 0), nest)
        self._starts = [*families.values()][:MOST_STARTS]
        self._values: dict[str, dict[Parameter, Primitive]] = {}
        self._usual: dict[str, Parameter] = {}
        for primitive in primitives_near(lifted.algorithm, self._starts[0], target):
            found = _setting(primitive, self._starts[0])
            if found is not None:
                name, value, usual = found
                self._values.setdefault(name, {})[value] = primitive
                self._usual[name] = usual

    def space(self, kernel: str, shape: Mapping[str, int]) -> Space:
        """A knob for the nest to begin with, and one for each primitive that has a value."""
        starts = list(range(len(self._starts)))
        told = [f"{number}: {described(nest)}." for number, nest in enumerate(self._starts)]
        meaning = " ".join([BEGINNING, *told])
        knobs = [_knob(START, starts, 0, meaning)] if len(starts) > 1 else []
        for name, values in self._values.items():
            usual = self._usual[name]
            meaning = " ".join((type(next(iter(values.values()))).__doc__ or "").split())
            knobs.append(_knob(name, _rising([*dict.fromkeys([usual, *values])]), usual, meaning))
        space = Space(kernel=kernel, shape=dict(shape), knobs=tuple(knobs))
        return space.model_copy(update={"foretold": tuple(self._foretold(space))})

    def _foretold(self, space: Space) -> list[tuple[Configuration, float]]:
        """What the default and single settings are priced, the cheapest first."""
        points = [space.default]
        for knob in space.knobs:
            rest = [value for value in knob.allowed if value != knob.default]
            points += [{**space.default, knob.name: value} for value in rest]
        priced = []
        for point in points:
            try:
                priced.append((point, self._made(point)[1].price.ms))
            except NotNested:
                continue
        return sorted(priced, key=lambda pair: pair[1])

    def configured(self, values: Mapping[str, Parameter]) -> Configured:
        """The kernel by the nest that the primitives make, if its price is not far beyond the least."""
        try:
            nest, lowered = self._made(values)
        except NotNested as refusal:
            return Configured(None, str(refusal))
        price = lowered.price.ms
        if price > FAR * self._least:
            said = f"it is priced at {price:.4g} ms, {price / self._least:.0f} times the cheapest"
            return Configured(None, said)
        return Configured(authored(self.lifted, nest, lowered.source, self.target))

    def _made(self, values: Mapping[str, Parameter]) -> tuple[Nest, Lowered]:
        """The nest that the primitives make of the start, and its kernel. Raises NotNested."""
        nest = self._starts[int(values.get(START, 0))]
        for name, usual in self._usual.items():
            if values.get(name, usual) != usual:
                primitive = self._values[name][values[name]]
                nest = changed(primitive, self.lifted.algorithm, nest, self.target)
        return nest, self.lifted.lowered(nest, self.target)


def _setting(primitive: Primitive, nest: Nest) -> tuple[str, Parameter, Parameter] | None:
    """The knob that a primitive sets, the value that it sets, and the one that it has in `nest`; None for
    one without a value."""
    of = primitive.definition
    stage = next((stage for stage in nest.stages if of in stage.members), None)
    match primitive:
        case Columns(size=size) if stage:
            return f"columns_{of}", size, stage.columns
        case Tile(axis=axis, size=size) if stage:
            loops = {part.axis: part.size for part in stage.loops}
            return f"tile_{of}_{axis}", size, loops.get(axis, 0)
        case Keep(side=side, memory=memory):
            return f"keep_{of}_{side}", memory, nest.memory(of, side)
        case Orient(side=side, way=way):
            return f"orient_{of}_{side}", way, nest.way(of, side) or OPEN
    return None


def _rising(values: Iterable[Parameter]) -> list[Parameter]:
    listed = list(values)
    if all(isinstance(value, (int, float)) for value in listed):
        return sorted(listed)
    return sorted(listed, key=lambda value: RISING.index(value) if value in RISING else 0)


def _knob(name: str, values: Sequence[Parameter], default: Parameter, meaning: str) -> KnobSpec:
    kind, allowed = type(values[0]).__name__, tuple(values)
    return KnobSpec(name=name, meaning=meaning, type=kind, allowed=allowed, default=default)  # type: ignore[arg-type]
