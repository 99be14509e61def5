"""Tables of which piece each position is of, as host code makes them from the pieces' offsets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from accelopt.kernels.triton.moves.numbering import numbered_pieces
from accelopt.kernels.triton.moves.source import assigned_in, called, names_in, target_of

COPIES = ("to", "int", "long", "contiguous", "type", "cuda", "clone", "cpu", "tolist", "numpy")
ON_HOST = ("cpu", "tolist", "numpy")
EMPTY = ("torch.empty", "torch.zeros")


class Table(NamedTuple):
    """A tensor that says of each position which piece it is of, the first piece 0.

    `offsets` names the tensor on the device with the pieces' offsets, one more than there are
    pieces; `made` are the statements that make the table and do nothing else.
    """

    offsets: str
    made: tuple[ast.stmt, ...]


class _Unknown(Exception):
    """A table is made in some other way."""


def table_of(function: ast.FunctionDef, name: str, calls: list[ast.Call]) -> Table | None:
    """How the table that launches are given by `name` was made, where nothing else reads it; None
    where that is not known."""
    blocks = _blocks_around(function, calls[0])
    outside = [s for block in blocks for s in block if not any(_holds(s, call) for call in calls)]
    mentions = [s for s in outside if name in names_in(s)]
    known = {id(inner) for node in (*mentions, *calls) for inner in ast.walk(node)}
    if not mentions or any(id(n) not in known for n in _places(function, name)):
        return None
    if mentions[-1].lineno > min(call.lineno for call in calls):
        return None
    with suppress(_Unknown):
        made = _Made(function, calls[0], outside)
        offsets = made.on_device(made.table(name, mentions))
        return Table(offsets, (*mentions, *made.further))
    return None


def unread_statements(function: ast.FunctionDef, removed: list[ast.stmt]) -> list[ast.stmt]:
    """What else only made things for statements that are taken away: assignments without effects."""
    gone = list(removed)
    while True:
        inside = {id(inner) for s in gone for inner in ast.walk(s)}
        wanted = {name for s in gone for name in names_in(s)}
        more = [
            s
            for s in ast.walk(function)
            if isinstance(s, ast.Assign)
            and id(s) not in inside
            and target_of(s) in wanted
            and _has_no_effect(s.value)
            and not _is_used(function, s, inside)
        ]
        if not more:
            return gone[len(removed) :]
        gone += more


def _is_used(function: ast.FunctionDef, made: ast.Assign, gone: set[int]) -> bool:
    """Whether the name that is assigned occurs in what is left beside its own statement."""
    own = gone | {id(inner) for inner in ast.walk(made)}
    return any(id(n) not in own for n in _places(function, str(target_of(made))))


def _places(function: ast.FunctionDef, name: str) -> list[ast.Name]:
    return [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]


def _has_no_effect(value: ast.expr) -> bool:
    """Whether an expression only computes: no assignment in it, and no call that may change what it
    is given."""
    for node in ast.walk(value):
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            return False
        if isinstance(node, ast.Call):
            name = called(node)
            is_method = isinstance(node.func, ast.Attribute) and not name.endswith("_")
            if not is_method and name not in ("len", "int", "range", "min", "max"):
                return False
    return True


def _blocks_around(function: ast.FunctionDef, call: ast.Call) -> Iterator[list[ast.stmt]]:
    """The bodies that a call stands in, from the outermost, loops excluded."""
    body = function.body
    while True:
        yield body
        holder = next((s for s in body if _holds(s, call)), None)
        if not isinstance(holder, (ast.If, ast.With)):
            return
        other = holder.orelse if isinstance(holder, ast.If) else []
        body = other if any(_holds(s, call) for s in other) else holder.body


def _holds(statement: ast.stmt, call: ast.Call) -> bool:
    return any(inner is call for inner in ast.walk(statement))


class _Made:
    """Reads how a table was made; `further` collects statements that do nothing else."""

    def __init__(
        self, function: ast.FunctionDef, call: ast.Call, statements: list[ast.stmt]
    ) -> None:
        self.function, self.statements = function, statements
        self.bound = {
            ast.unparse(given) for given in (*call.args, *(k.value for k in call.keywords))
        }
        self.further: list[ast.stmt] = []

    def table(self, name: str, mentions: list[ast.stmt]) -> str:
        """The name of the offsets; raises _Unknown."""
        first, *others = mentions
        if not isinstance(first, ast.Assign) or target_of(first) != name:
            raise _Unknown
        offsets, value = "", first.value
        for other in others:
            if isinstance(other, ast.For) and not offsets and called(value) in EMPTY:
                found = numbered_pieces(other)
                if found is None or found.table != name:
                    raise _Unknown
                offsets = found.offsets
            elif isinstance(other, ast.Assign) and target_of(other) == name:
                bare, value = _bare(other.value), other.value
                if ast.unparse(bare) != name:  # what the name held before is not read
                    if name in names_in(bare) and called(bare) != "torch.searchsorted":
                        raise _Unknown
                    offsets = self._expression(other.value)
            else:
                raise _Unknown
        return offsets or self._expression(first.value)

    def on_device(self, name: str) -> str:
        """A tensor on the device with the numbers of `name`: best one that the launch is given."""
        chain, device = [name], [name]
        while True:
            made = self._assigned(chain[-1])
            bare = _bare(made) if made is not None else None
            if not isinstance(bare, ast.Name) or bare.id in chain:
                break
            if any(f".{word}(" in ast.unparse(made) for word in ON_HOST):  # type: ignore[arg-type]
                device = []
            chain.append(bare.id)
            device.append(bare.id)
        if not device:
            raise _Unknown
        return next((one for one in device if one in self.bound), device[0])

    def _assigned(self, name: str) -> ast.expr | None:
        """What a name is assigned, where that is done once."""
        made = [
            s.value
            for s in ast.walk(self.function)
            if isinstance(s, ast.Assign) and name in assigned_in([s])
        ]
        known = [
            s for s in ast.walk(self.function) if isinstance(s, ast.Assign) and target_of(s) == name
        ]
        return made[0] if len(made) == 1 and known else None

    def _followed(self, node: ast.expr) -> ast.expr:
        """An expression without copies, what a name is made of in its place; other names of a
        tensor stay."""
        node = _bare(node)
        made = self._assigned(node.id) if isinstance(node, ast.Name) else None
        if made is None or ast.unparse(_bare(made)) == ast.unparse(node):
            return node
        followed = self._followed(made)
        return node if isinstance(followed, ast.Name) else followed

    def _expression(self, node: ast.expr) -> str:
        """The offsets of a table made by one expression."""
        node = self._followed(node)
        name = called(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            if ast.unparse(node.right) != "1":
                raise _Unknown
            return self._counted(self._followed(node.left), first=0)
        if isinstance(node, ast.Call) and name.endswith("repeat_interleave"):
            return self._repeated(node)
        if isinstance(node, ast.Call) and name in ("torch.tensor", "torch.as_tensor"):
            return self._listed(node)
        return self._counted(node, first=1)

    def _listed(self, node: ast.Call) -> str:
        """The offsets of a list that a loop wrote."""
        [name] = [a.id for a in node.args if isinstance(a, ast.Name)] or [""]
        own = [s for s in self.statements if name in names_in(s) and node not in ast.walk(s)]
        if (
            len(own) != 2
            or ast.unparse(own[0]) != f"{name} = []"
            or not isinstance(own[1], ast.For)
        ):
            raise _Unknown
        found = numbered_pieces(own[1])
        places = {id(inner) for s in own for inner in ast.walk(s)}
        uses = [n for n in _places(self.function, name) if id(n) not in places]
        if found is None or found.table != name or len(uses) != 1:
            raise _Unknown
        self.further += own
        return found.offsets

    def _repeated(self, node: ast.Call) -> str:
        """`repeat_interleave` of the pieces' numbers by their lengths."""
        given = list(node.args)
        if called(node) != "torch.repeat_interleave":
            assert isinstance(node.func, ast.Attribute)
            given.insert(0, node.func.value)
        given += [k.value for k in node.keywords if k.arg == "repeats"]
        if any(k.arg not in ("output_size", "repeats", "dim") for k in node.keywords):
            raise _Unknown
        if len(given) > 1 and not self._is_count(given[0]):
            raise _Unknown
        return self._lengths(given[min(1, len(given) - 1)])

    def _is_count(self, node: ast.expr) -> bool:
        """Whether an expression is 0, 1, 2 and so on."""
        node = self._followed(node)
        if not isinstance(node, ast.Call) or called(node) != "torch.arange":
            return False
        return len(node.args) == 1 or (len(node.args) == 2 and ast.unparse(node.args[0]) == "0")

    def _lengths(self, node: ast.expr) -> str:
        """The offsets that lengths are the differences of."""
        node = self._followed(node)
        if isinstance(node, ast.Call) and called(node) == "torch.diff" and len(node.args) == 1:
            return self._name(node.args[0])
        own = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(own, ast.Attribute)
            and own.attr == "diff"
            and ast.unparse(node).endswith("()")
        ):
            return self._name(own.value)
        if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
            raise _Unknown
        last, first = (_part(self._followed(side)) for side in (node.left, node.right))
        if last[1:] != ("1", "") or first[1:] != ("", "-1") or last[0] != first[0]:
            raise _Unknown
        return last[0]

    def _counted(self, node: ast.expr, first: int) -> str:
        """The offsets from the `first` on, of which those up to a position are counted."""
        name = called(node)
        if not isinstance(node, ast.Call):
            raise _Unknown
        if name in ("torch.searchsorted", "torch.bucketize") and len(node.args) == 2:
            words = {k.arg: ast.unparse(k.value) for k in node.keywords}
            words.pop("out_int32", None)
            if words not in ({"right": "True"}, {"side": "'right'"}):
                raise _Unknown
            ends, places = node.args if name == "torch.searchsorted" else node.args[::-1]
        elif name.endswith(".sum") or name == "torch.sum":
            ends, places = self._compared(node)
        else:
            raise _Unknown
        offsets, lower, upper = _part(self._followed(ends))
        if not self._is_count(places) or lower not in (str(first), "" if first == 0 else "1"):
            raise _Unknown
        if upper not in ("", "-1"):
            raise _Unknown
        return offsets

    def _compared(self, node: ast.Call) -> tuple[ast.expr, ast.expr]:
        """Ends and positions of `(places[:, None] >= ends[None, :]).sum(1)`."""
        given = [*node.args, *(k.value for k in node.keywords if k.arg in ("dim", "axis"))]
        if called(node) != "torch.sum":
            assert isinstance(node.func, ast.Attribute)
            given.insert(0, node.func.value)
        if len(given) != 2 or ast.unparse(given[1]) not in ("1", "-1"):
            raise _Unknown
        test = self._followed(given[0])
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
            raise _Unknown
        sides = [test.left, test.comparators[0]]
        if isinstance(test.ops[0], ast.LtE):
            sides.reverse()
        elif not isinstance(test.ops[0], ast.GtE):
            raise _Unknown
        return _along(sides[1], 0), _along(sides[0], 1)

    def _name(self, node: ast.expr) -> str:
        node = _bare(node)
        if not isinstance(node, ast.Name):
            raise _Unknown
        return node.id


def _along(node: ast.expr, axis: int) -> ast.expr:
    """A vector that lies along the columns (0) or the rows (1) of a tile."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        given = [ast.unparse(argument) for argument in node.args]
        if node.func.attr == "unsqueeze" and given in ([str(axis)], [str(axis - 2)]):
            return node.func.value
    if isinstance(node, ast.Subscript):
        text = ast.unparse(node.slice).strip("()").replace(" ", "")
        if text in (("None,:", "None") if axis == 0 else (":,None",)):
            return node.value
        if axis == 0 and text == "None,1:":
            return ast.Subscript(node.value, ast.Slice(ast.Constant(1), None, None), ast.Load())
    raise _Unknown


def _part(node: ast.expr) -> tuple[str, str, str]:
    """Name and bounds of `b`, `b[1:]`, `b[:-1]` and the like."""
    if isinstance(node, ast.Name):
        return node.id, "", ""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
        raise _Unknown
    value = _bare(node.value)
    bounds = [
        "" if bound is None else ast.unparse(bound)
        for bound in (node.slice.lower, node.slice.upper)
    ]
    if not isinstance(value, ast.Name) or node.slice.step is not None:
        raise _Unknown
    return value.id, "" if bounds[0] == "0" else bounds[0], bounds[1]


def _bare(node: ast.expr) -> ast.expr:
    """An expression without copies to another type, device or memory, and limits that hold."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        word = node.func.attr
        is_limit = word in ("clamp", "clamp_") and _holds_anyway(node)
        if not is_limit and word not in COPIES:
            return node
        node = node.func.value
    return node


def _holds_anyway(node: ast.Call) -> bool:
    """Whether a limit is none for the numbers of pieces: not above 0 below, and above one less than
    some number, or two less than a length, as that of the offsets is."""
    limits = dict(zip(("min", "max"), node.args, strict=False))
    limits |= {str(k.arg): k.value for k in node.keywords}
    least, most = (ast.unparse(limits.get(word, ast.Constant(None))) for word in ("min", "max"))
    is_length = any(word in most for word in (".shape[0]", ".numel()", ".size(0)", "len("))
    lasts = most == "None" or most.endswith("- 1") or (is_length and most.endswith("- 2"))
    return least in ("0", "None") and lasts
