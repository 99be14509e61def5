"""How long values live: what instructions give each, what is kept for a block of rows, what is
written over what."""

from __future__ import annotations

from accelopt.kernels.nki.lift.emission.graph import GraphValue, NotLowered
from accelopt.kernels.nki.lift.emission.phases import Phase, Phases, Placed
from accelopt.kernels.nki.lift.emission.selection import NoEngine, Selection, select


class Lifetimes:
    """Of the values of a plan: `steps` by phase, `numbers` that are worked out before the phases of
    a level beside those of the plan, values that are `kept` for a block of rows, and `alias`: what
    is written over a kept value that nobody reads any more, if values are to `overwrite` others."""

    def __init__(self, plan: Phases, overwrite: bool) -> None:
        self.plan = plan
        self.overwrite = overwrite
        self.roles = plan.roles
        self.graph = plan.roles.graph
        self.steps: dict[int, list[Selection]] = {}
        self.numbers: dict[int, list[GraphValue]] = {}
        self.kept: set[Placed] = set()
        self.alias: dict[Placed, Placed] = {}
        self._made = 0
        self._select()
        self._find_kept()

    def _select(self) -> None:
        """The steps of every phase, which values outlive theirs, and where inputs are loaded."""
        outputs = {output.value for output in self.graph.outputs}
        operands = set(self.plan.operands)
        levels: dict[tuple[GraphValue, str], set[int]] = {}
        for number, phase in enumerate(self.plan.phases):
            for value in phase.values:
                for argument in value.arguments if value.kind != "product" else ():
                    levels.setdefault((argument, phase.layout), set()).add(number)
        users = self.graph.users()
        for number, phase in enumerate(self.plan.phases):
            inside = set(phase.values)
            single = {
                value
                for value in phase.values
                if value.kind in ("apply", "where")
                and value not in outputs | operands
                and len([user for user in users[value] if self._reads(user, phase)]) == 1
                and levels.get((value, phase.layout)) == {number}
                and all(user in inside for user in users[value] if self._reads(user, phase))
            }
            self.steps[number] = self._steps(phase, single)

    def _reads(self, user: GraphValue, phase: Phase) -> bool:
        """True when a user takes its operands in the layout of a phase."""
        return Placed(user, phase.layout) in self.plan.level or user.kind == "reduce"

    def _steps(self, phase: Phase, single: set[GraphValue]) -> list[Selection]:
        def is_number(value: GraphValue) -> bool:
            if value.kind == "constant":
                return True
            has_rows = self.roles.has_rows(value)
            feature = self.roles.feature(value)
            return (
                (has_rows and not feature)
                if phase.layout == "rows"
                else (not has_rows and feature is not None)
            )

        def times(value: GraphValue, factor: float) -> GraphValue:
            number = factor * value.constant if value.kind == "constant" else factor
            self._made += 1
            constant = GraphValue(-2 * self._made, "constant", frozenset(), constant=number)
            if value.kind == "constant":
                return constant
            made = GraphValue(
                -2 * self._made - 1, "apply", value.axes, (value, constant), "multiply"
            )
            self.numbers.setdefault(phase.level, []).append(made)
            return made

        values = [v for v in phase.values if v.kind in ("apply", "where", "reduce", "scan")]
        try:
            return select(values, is_number, single, times, self.roles.inner)
        except NoEngine as error:
            raise NotLowered(str(error)) from None

    def _find_kept(self) -> None:
        """Values that a later phase reads, or a product as they lie, are kept for a block of rows;
        an input is loaded where it is first read."""
        made: dict[Placed, int] = {}
        read: dict[Placed, set[int]] = {}
        for number, phase in enumerate(self.plan.phases):
            for value in phase.values:
                made.setdefault(Placed(value, phase.layout), number)
            for step in self.steps[number]:
                for tile in step.tiles:
                    read.setdefault(Placed(tile, phase.layout), set()).add(number)
            for value in phase.values if phase.layout == "rows" else ():
                if value in self.plan.transposed:
                    read.setdefault(Placed(value, "rows"), set()).add(number)
                if value.kind == "product" and self.plan.turned(value):
                    read.setdefault(Placed(value, "transposed"), set()).add(number)
        for number, phase in enumerate(self.plan.phases):
            for value in list(phase.values):
                placed = Placed(value, phase.layout)
                direct = phase.layout == "transposed" and value in self.plan.operands
                users = read.get(placed, set())
                if value.kind == "input" and users and not direct:
                    first = min(users)
                    if first != number:
                        phase.values.remove(value)
                        self.plan.phases[first].values.insert(0, value)
                    if len(users) > 1:
                        self.kept.add(placed)
                elif direct or users - {number}:
                    self.kept.add(placed)
        if self.overwrite:
            self._reuse(read)

    def _reuse(self, read: dict[Placed, set[int]]) -> None:
        """A step whose operand nobody reads any more writes over it."""
        for number, phase in enumerate(self.plan.phases):
            inner, outer = self.split(number, phase)
            order = inner + outer
            for place, step in enumerate(order):
                later = {tile for other in order[place + 1 :] for tile in other.tiles}
                for tile in step.tiles if step.opcode != "reduce" else ():
                    placed = Placed(tile, phase.layout)
                    ends = max(read.get(placed, {number})) == number and tile not in later
                    here = tile in phase.values  # then it may be stored or transposed after this
                    busy = here and (tile in self.plan.operands or self.is_output(tile))
                    if placed in self.kept and ends and not busy:
                        self.alias[Placed(step.value, phase.layout)] = self.alias.get(
                            placed, placed
                        )
                        break

    def is_output(self, value: GraphValue) -> bool:
        """True for a value that is stored."""
        return any(output.value is value for output in self.graph.outputs)

    def split(self, number: int, phase: Phase) -> tuple[list[Selection], list[Selection]]:
        """The steps that read sums in PSUM, and those that come after."""
        products = {value for value in phase.values if value.kind == "product"}
        made_outside: set[GraphValue] = set()
        inner: list[Selection] = []
        outer: list[Selection] = []
        for step in self.steps[number]:
            reads = products & set(step.tiles)
            free = not made_outside & set(step.tiles)
            if reads and free and step.opcode != "reduce" and step.total is None:
                inner.append(step)
            else:
                outer.append(step)
                made_outside.add(step.value)
        return inner, outer

    def needs_copy(
        self, product: GraphValue, inner: list[Selection], outer: list[Selection], phase: Phase
    ) -> bool:
        """True when something reads a product that cannot read it in PSUM."""
        placed = Placed(product, phase.layout)
        return (
            placed in self.kept
            or any(product in step.tiles for step in outer)
            or any(output.value is product for output in self.graph.outputs)
            or product in self.plan.operands
        )
