"""The loops that are open while a nest is written, and where in them a statement stands."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from accelopt.algorithm.index import Axis
from accelopt.kernels.nki.nests.axis_positions import At, FreeNames, Span, variable
from accelopt.kernels.nki.nests.nest import NotNested, evenly
from accelopt.kernels.nki.nests.places import Block, Round, Where
from accelopt.kernels.nki.nests.skipping import Mask
from accelopt.kernels.nki.nests.statements import For, Form, Line, line
from accelopt.kernels.nki.nests.text import Writer, collected

MOST_STATEMENTS = 2_000
"""Of a kernel, before rounds that are alike become loops: the longest winners have 550 lines."""


class Loops:
    """Open loops over parts of axes, and the statements in them."""

    def __init__(self, names: FreeNames, text: Writer) -> None:
        self.names = names
        self.text = text
        self.blocks = [Block(None, [])]
        self.written = 0
        """Statements."""
        self.engine = ""
        """On which what is written runs, where it can; empty for any."""
        self.sequential = False
        """Whether a round of the loops that are opened needs what the one before made."""
        self.overlaps = False
        """Whether rounds of the outermost loops overlap."""
        self.scanned: set[Axis] = set()
        """Axes whose rounds follow one another."""
        self.deciding: Mapping[Axis, Sequence[int]] = {}
        """By axis, where along it conditions begin or end to hold."""
        self.masks: dict[Axis, tuple[Mask, ...]] = {}
        """By axis, what is kept by masks that leave blocks of it empty."""
        self.changing: Mapping[Axis, Sequence[int]] = {}
        """By longer axis, where along it another of two values is taken: rounds with such a place are written on
        their own."""
        self.copied: set[Axis] = set()
        """Axes whose rounds have bodies of their own."""

    def put(self, text: str, *forms: Form, moved: int = 0) -> None:
        """Appends a statement to the innermost block: a text, or forms of one for several engines."""
        forms = tuple(f for f in forms if f.engine == self.engine) or forms
        self.written += 1
        if self.written > MOST_STATEMENTS:
            raise NotNested(f"a kernel of it would have more than {MOST_STATEMENTS:,} statements")
        made = Line(forms, moved) if forms else line(text)
        self.blocks[-1].nodes.append(made)

    def home(self, variables: set[str]) -> int:
        """The depth of the innermost open loop among some variables'."""
        return max((n for n, b in enumerate(self.blocks) if b.variable in variables), default=0)

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """What is appended within stands in the block of that depth, before loops opened since."""
        saved = self.blocks
        self.blocks = saved[: depth + 1]
        try:
            yield
        finally:
            self.blocks = saved

    @contextmanager
    def loop(self, name: str, rounds: int, sequential: bool = False) -> Iterator[At]:
        """A loop, where there is more than one round; yields its variable."""
        if rounds == 1:
            yield At()
            return
        unique = self.names.new(name)
        self.text.reach[unique] = rounds
        block = Block(unique, [])
        self.blocks.append(block)
        yield variable(unique)
        self.blocks.pop()
        kind = "sequential_range" if sequential or self.sequential else "affine_range"
        made = For(
            unique, rounds, block.nodes, kind, overlaps=self.overlaps and len(self.blocks) == 1
        )
        self.blocks[-1].nodes.append(made)

    def each(self, where: Where, parts: Sequence[tuple[Axis, int]],
             body: Callable[[Round], None], number: At | None = None) -> None:  # fmt: skip
        """Does `body` for all parts of some axes, in loops as far as they are alike."""
        if not parts:
            body(Round(where, number or At()))
            return
        (axis, size), rest = parts[0], parts[1:]
        before = (number or At()) * self.rounds(where, parts[:1])
        for start, width in self.pieces(axis, where, size):
            whole, left = divmod(width, min(size, width))
            step = min(size, width)
            if axis in self.copied:
                for n in range(whole):
                    own = where.within({axis: Span(collected(start + n * step), step)})
                    self.each(own, rest, body, before + n)
            elif whole == 1:
                self.each(where.within({axis: Span(start, step)}), rest, body, before)
            elif whole:
                with self.loop(f"i_{axis.name}", whole, axis in self.scanned) as at:
                    spot = where.within({axis: Span(collected(start + at * step), step)})
                    self.blocks[-1].spans = spot.spans
                    self.each(spot, rest, body, before + at)
            if left:
                spot = where.within({axis: Span(collected(start + whole * step), left)})
                self.each(spot, rest, body, before + whole)
            before = before + whole + bool(left)

    def pieces(self, axis: Axis, where: Where, size: int = 0) -> list[tuple[At, int]]:
        """Where parts of a short axis begin in a place, in which no condition changes, and how many
        elements they have; of another axis all that is not left out, or parts of several rounds of a `size` and
        single rounds."""
        start, width = where.span(axis).start, where.span(axis).width
        if runs := where.span(axis).runs:
            return [(At(first), end - first) for first, end in runs]
        rounds = axis in self.changing and 0 < size < width
        if not (rounds or axis in self.deciding) or width == 1 or start.terms:
            return [(start, width)]
        first, last = start.constant, start.constant + width
        cuts = self.deciding.get(axis, ())
        if rounds:
            numbers = ((n - first) / size for n in self.changing[axis])
            cuts = sorted({first + f(n) * size for n in numbers for f in (math.floor, math.ceil)})
        inside = (n for n in cuts if first < n < last)
        return [(At(n), end - n) for n, end in itertools.pairwise((first, *inside, last))]

    def rounds(self, where: Where, parts: Sequence[tuple[Axis, int]]) -> int:
        """How many rounds `each` has for parts of some axes."""
        return math.prod(
            sum(-(-width // size) for _, width in self.pieces(axis, where, size))
            for axis, size in parts
        )

    def cut(self, where: Where, axes: Sequence[Axis], most: int) -> list[tuple[Axis, int]]:
        """Parts of axes with no more than `most` elements together: the outer axes one by one, as far
        as is needed."""
        parts: list[tuple[Axis, int]] = []
        room = most
        for axis in reversed(axes):
            width = where.span(axis).width
            size = evenly(width, max(1, min(width, room)))
            if size < width or len(self.pieces(axis, where)) > 1:
                parts.append((axis, size))
            # Copies of a body with blocks of their own are cut alike.
            whole = axis.extent if axis in self.masks else size
            room = max(1, room // max(size, min(whole, most)))
        return list(reversed(parts))

    def bounds(self, base: At, steps: Mapping[Axis, tuple[int, int]]) -> tuple[int, int]:
        """The least and the largest value of a place over loops and axes."""
        ends = [f * (self.text.reach[v] - 1) for v, f in base.terms]
        ends += [(width - 1) * step for width, step in steps.values()]
        low = base.constant + sum(min(end, 0) for end in ends)
        return low, base.constant + sum(max(end, 0) for end in ends)
