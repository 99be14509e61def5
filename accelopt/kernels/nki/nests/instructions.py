"""Single instructions on parts of tiles, with the engines that have them and their times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from accelopt.algorithm.index import Axis
from accelopt.algorithm.linear import row_major
from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.axis_positions import START, At, FreeNames, Span, variable
from accelopt.kernels.nki.nests.nest import NotNested, evenly
from accelopt.kernels.nki.nests.places import Block, Round, View, Where
from accelopt.kernels.nki.nests.selection import Selection, is_positive_part
from accelopt.kernels.nki.nests.skipping import Mask
from accelopt.kernels.nki.nests.statements import For, Form, Line, line
from accelopt.kernels.nki.nests.text import MOST_FREE, Tile, Writer, collected, merged
from accelopt.kernels.nki.nests.values import Value
from accelopt.sim.dtypes import parse

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


def is_one(
    values: Iterable[Value], beside: Collection[Axis], free: Collection[Axis],
    counts: tuple[int, int], spec: Hardware,
) -> bool:  # fmt: skip
    """Whether what is computed of values in parts `beside` each other, along other `free` axes, is one instruction.
    A number for each part becomes a tile that is read beside the others: `counts` are parts, and elements of each."""
    numbers = any(v.axes & {*beside} and not v.axes & {*free} for v in values)
    number, width = counts
    return not numbers or number * width <= (number - 1) * spec.access_cycles


class Instructions(Loops):
    """Makes tiles, and writes instructions on parts of them into the open loops."""

    def __init__(
        self, names: FreeNames, text: Writer, spec: Hardware, results: Collection[str]
    ) -> None:
        super().__init__(names, text)
        self.spec = spec
        self.results = results
        """Names that arrays in HBM have."""

    def new_tile(
        self, name: str, where: Where, axes: Sequence[Axis], dtype: str = "float32",
        psum: bool = False, sums: bool = False,
    ) -> View:  # fmt: skip
        """A new tile with some free axes, row-major; `sums` in PSUM are added to."""
        strides: dict[Axis, int] = {}
        width = 1
        for axis in reversed(axes):
            strides[axis] = width
            width *= where.span(axis).width
        name = self.names.new(f"{name}_tile" if name in self.results else name)
        tile = Tile(name, where.rows, width, dtype, psum or sums)
        self.declare(tile, sums)
        return View(tile, At(), dict(reversed(strides.items())))

    def declare(self, tile: Tile, sums: bool = False) -> None:
        """Makes a tile. Raises NotNested for one that is larger than its memory."""
        size = tile.width * parse(tile.dtype).itemsize
        room = self.spec.psum_partition_bytes if tile.psum else self.spec.sbuf_usable_bytes
        if size > room:
            memory = "PSUM" if tile.psum else "SBUF"
            raise NotNested(f"{tile.name} takes {size} of {room} bytes of {memory} a partition")
        self.put(self.text.on_chip(tile, sums))

    def said(self, target: View, *sources: View) -> str:
        """The format to say with an instruction, where it is not fp32 all along."""
        formats = {view.tile.dtype for view in (target, *sources)}
        return "" if formats == {"float32"} else target.tile.dtype

    def vector_ns(self, width: int) -> float:
        """Nanoseconds of the Vector engine for elements a partition."""
        return (width + self.spec.access_cycles) / self.spec.vector_ghz

    def scalar_ns(self, width: int) -> float:
        """Nanoseconds of the Scalar engine for elements a partition."""
        return (width + self.spec.access_cycles) / self.spec.scalar_ghz

    def gpsimd_ns(self, width: int) -> float:
        """Nanoseconds of GpSimd for elements a partition."""
        cycles = self.spec.gpsimd_start_cycles + self.spec.gpsimd_cycles_per_element * width
        return cycles / self.spec.gpsimd_ghz

    def issue(
        self, where: Where, axes: Sequence[Axis], views: Sequence[View],
        write: Callable[[str, list[str], int], tuple[Form, ...]],
    ) -> None:  # fmt: skip
        """One instruction on parts of tiles, or a loop of it where they have more free axes than an
        access can. `write` gets the text of the first view, those of the others, and the width."""
        counts = [where.span(axis).width for axis in axes]
        sizes, strides = merged(counts, [[v.strides.get(a, 0) for a in axes] for v in views])
        rows = where.rows
        self._issue(rows, sizes, strides, views, write)

    def _issue(
        self, rows: int, sizes: list[int], strides: list[list[int]], views: Sequence[View],
        write: Callable[[str, list[str], int], tuple[Form, ...]],
    ) -> None:  # fmt: skip
        if len(sizes) > MOST_FREE:
            with self.loop("i_part", sizes[0]) as at:
                moved = [
                    View(v.tile, v.offset + at * s[0], {})
                    for v, s in zip(views, strides, strict=True)
                ]
                self._issue(rows, sizes[1:], [s[1:] for s in strides], moved, write)
            return
        texts = [
            self.text.inside(v.tile, rows, v.offset, sizes, s)
            for v, s in zip(views, strides, strict=True)
        ]
        forms = write(texts[0], texts[1:], math.prod(sizes))
        if any(view.tile.psum for view in views):  # out of reach of the GpSimd engine
            forms = tuple(form for form in forms if form.engine != "gpsimd") or forms
        self.put("", *forms)

    def copy(self, where: Where, axes: Sequence[Axis], target: View, source: View) -> None:
        """Copies, converts, repeats along free axes."""

        def write(dst: str, data: list[str], width: int) -> tuple[Form, ...]:
            said = self.said(target, source)
            vector = self.text.call(
                dst, "tensor_copy", f"{data[0]}, engine=nisa.vector_engine".replace(
                    data[0], f"src={data[0]}", 1), said)  # fmt: skip
            scalar = self.text.call(dst, "activation", f"op=nl.copy, data={data[0]}", said)
            return (
                Form(vector, "vector", self.vector_ns(width)),
                Form(scalar, "scalar", self.scalar_ns(width)),
            )

        self.issue(where, axes, [target, source], write)

    def converted(self, view: View, where: Where, axes: Sequence[Axis], dtype: str) -> View:
        """The same elements in another format."""
        made = self.new_tile(f"{view.tile.name}_{dtype}", where, axes, dtype)
        self.copy(where, axes, made, view)
        return made

    def transpose(self, into: View, source: View, shape: tuple[int, int], step: int = 1) -> None:
        """Elements `step` apart, by the Tensor engine to partitions; `shape` is from how many partitions,
        and how many elements of each."""
        rows, width = shape
        data = self.text.inside(source.tile, rows, source.offset, [width], [step])
        dst = self.text.inside(into.tile, width, into.offset, [rows], [1])
        ns = self.spec.matmul_ns(rows, width, source.tile.dtype)
        self.put("", Form(self.text.transposed(dst, data), "tensor", ns))

    def fill(
        self, tile: Tile, number: str, sizes: Sequence[int] = (), steps: Sequence[int] = (1,),
        offset: At = START, zeros: bool = False,
    ) -> None:  # fmt: skip
        """Writes a number all over a tile, or a part of it; zeros where not all is written later by GpSimd, which
        hardly waits for others."""
        sizes, engine = sizes or [tile.width], "gpsimd" if zeros else ""
        width, shape = math.prod(sizes), (tile.partitions, *sizes)
        dst = self.text.inside(tile, tile.partitions, offset, sizes, steps)
        text = self.text.filled(dst, shape, number, tile.dtype, engine)
        ns = self.gpsimd_ns(width) if zeros else self.vector_ns(width)
        self.put("", Form(text, engine or "vector", ns))

    def column(self, view: View, rows: int) -> str:
        """One element a partition."""
        return self.text.inside(view.tile, rows, view.offset, [1], [1])

    def two_tiles(
        self, dst: str, given: Sequence[str], name: str, width: int, views: Sequence[View]
    ) -> tuple[Form, ...]:
        """A tensor_tensor, on either engine that has it; `views` are its result and its operands."""
        text, said = f"data1={given[0]}, data2={given[1]}, op={name}", self.said(*views)
        fast = any(view.tile.psum or view.tile.spread for view in views[1:])
        cycles = (1.0 if fast else self.spec.two_input_cycles_per_element) * width
        engines = [("vector", self.vector_ns(int(cycles))), ("gpsimd", self.gpsimd_ns(width))]
        if name == "nl.power":
            del engines[0]
        elif self.spec.vector_gpsimd_exclusive:  # one waits for the other
            del engines[1]
        return tuple(
            Form(
                self.text.call(dst, "tensor_tensor", f"{text}, engine=nisa.{engine}_engine", said),
                engine, ns,
            )
            for engine, ns in engines
        )  # fmt: skip

    def scalar_form(
        self, dst: str, data: str, names: Sequence[str], numbers: Sequence[str], reverse: bool,
        width: int, said: str,
    ) -> Form:  # fmt: skip
        """A tensor_scalar on the Vector engine."""
        text = f"data={data}, op0={names[0]}, operand0={numbers[0]}"
        text += ", reverse0=True" if reverse else ""
        if len(names) > 1:
            text += f", op1={names[1]}, operand1={numbers[1]}"
        call = self.text.call(dst, "tensor_scalar", f"{text}, engine=nisa.vector_engine", said)
        return Form(call, "vector", self.vector_ns(width))

    def on_scalar_engine(
        self, step: Selection, dst: str, data: str, numbers: Sequence[str], width: int, said: str
    ) -> tuple[Form, ...]:
        """`x * scale + bias` or `bias - x`, or the larger of that and 0, as an activation, where the bias is a tile or nothing."""
        functions, given = step.functions, step.numbers
        positive = is_positive_part(functions[-1], given[-1])
        if positive:
            functions, given = functions[:-1], given[:-1]
        scale = bias = ""
        match functions:
            case ("multiply",):
                scale = numbers[0]
            case ("multiply", "add"):
                scale, bias = numbers
            case ("add",):
                bias = numbers[0]
            case ("subtract",) if step.reversed:
                scale, bias = "-1.0", numbers[0]
            case () if positive:
                pass
            case _:
                return ()
        if bias and (last := given[-1]) is not None and last.kind == "constant":
            return ()
        text = f"op=nl.{'relu' if positive else 'copy'}, data={data}"
        text += f", bias={bias}" if bias else ""
        text += f", scale={scale}" if scale else ""
        call = self.text.call(dst, "activation", text, said)
        return (Form(call, "scalar", self.scalar_ns(width)),)

    def reduced(
        self, function: str, rows: int, into: View, view: View, sizes: list[int],
        strides: list[int], inner: int = 1, out: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """A tensor_reduce over the last `inner` axes of an access."""
        data = self.text.inside(view.tile, rows, view.offset, sizes, strides)
        outer = sizes[: len(sizes) - inner]
        dst = self.text.inside(into.tile, rows, into.offset, outer or [1], list(out) or [1])
        over = [n + 1 for n in range(len(outer), len(sizes))]
        name = {"maximum": "nl.max", "minimum": "nl.min"}.get(function, f"nl.{function}")
        if self.text.nki:
            name = f"nl.{function}"
        said = self.said(into, view)
        text = f"op={name}, data={data}, axis={over}, keepdims=True"
        call = self.text.call(dst, "tensor_reduce", text, said)
        forms = [Form(call, "vector", self.vector_ns(math.prod(sizes)))]
        if function == "add" and not outer and into.tile.dtype == "float32":
            # The Scalar engine sums what it copies.
            scratch = Tile(self.names.new("copied"), rows, math.prod(sizes))
            copied = self.text.inside(scratch, rows, At(), sizes, row_major(sizes))
            text = f"op=nl.copy, data={data}, reduce_op=nl.add, reduce_res={dst}"
            call = self.text.call(copied, "activation_reduce", text, "float32" if said else "")
            made = f"{self.text.on_chip(scratch)}\n{call}"
            forms.append(Form(made, "scalar", self.scalar_ns(math.prod(sizes))))
        self.put("", *forms)

    def ones(self, rows: int, count: int, dtype: str) -> str:
        """The name of a tile of ones, made before all loops."""
        key = ("ones", rows, count, dtype)
        if key not in self.blocks[0].values:
            with self.at(0):
                tile = Tile(self.names.new("ones"), rows, count, dtype)
                self.declare(tile)
                fill = self.text.filled(f"{tile.name}[...]", (rows, count), "1.0", dtype)
                self.put("", Form(fill, "vector", self.vector_ns(count)))
                self.blocks[0].values[key] = View(tile, At(), {})
        return self.blocks[0].values[key].tile.name

    def identity(self, rows: int, dtype: str) -> str:
        """The identity, made before all loops."""
        key = ("identity", rows, dtype)
        if key not in self.blocks[0].values:
            ones = self.ones(rows, rows, dtype)
            with self.at(0):
                tile = Tile(self.names.new("identity"), rows, rows, dtype)
                self.declare(tile)
                dst, data = f"{tile.name}[...]", f"{ones}[...]"
                for row, step in ((1, -1), (-1, 1)):
                    made = self.text.selected(
                        dst, data, "0.0", rows, START, row, [rows], [step], dtype
                    )
                    self.put("", Form(made, "gpsimd", self.gpsimd_ns(rows)))
                    data = dst
                self.blocks[0].values[key] = View(tile, At(), {})
        return f"{self.blocks[0].values[key].tile.name}[...]"
