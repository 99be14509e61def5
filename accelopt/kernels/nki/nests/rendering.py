"""Statements of a kernel as text, in few words: all of a tile by its name, a result as the tile that an instruction
makes, where nothing else was to be declared for it (neuronxcc), and loops by as few names as will do."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from accelopt.kernels.nki.nests.axis_positions import without_number
from accelopt.kernels.nki.nests.statement_trees import (
    Declared,
    assigned,
    declared,
    mapped,
    trees,
    whole_tile,
    written,
)
from accelopt.kernels.nki.nests.statements import (
    Comment,
    Each,
    For,
    If,
    Line,
    NestNode,
    header,
    line,
    names_of,
    settled,
    texts,
)
from accelopt.parsing import names_read

IN_PSUM = ("nisa.nc_transpose", "nisa.nc_matmul")
"""Instructions whose results stand in PSUM."""


def rendered(nodes: list[NestNode]) -> list[str]:
    """The lines of a function's body, engines chosen. Loops that are not inside each other may have one name.

    before: y = nl.ndarray((nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.sbuf)
            y[0:128, 0:512] = nisa.activation(op=nl.exp, data=x[0:128, 0:512])
    after:  y = nisa.activation(op=nl.exp, data=x)
    """
    found = [text for node in settled(nodes) for text in texts(node)]
    tiles = {tile.name: tile for text in found for tile in map(declared, trees(text)) if tile}
    for statement in (own for text in reversed(found) for own in trees(text)):
        match assigned(statement):
            case ast.Name(id=name), ast.Name(id=like) if like in tiles:  # that of a round before
                tiles[name] = tiles[like]._replace(name=name)
    ranges = {name: [f"0:{count}" for count in tile.shape] for name, tile in tiles.items()}
    times = Counter(name for text in found for name in written(text))
    return [*_Text(tiles, ranges, times, names_of(*nodes, stored=True)).block(nodes, {}, "    ")]


@dataclass(frozen=True)
class _Text:
    """Who knows the tiles of a kernel, all ranges of each, how often each is written, and all names that are given."""

    tiles: Mapping[str, Declared]
    ranges: Mapping[str, list[str]]
    times: Mapping[str, int]
    stored: set[str]

    def block(
        self, nodes: Sequence[NestNode], called: Mapping[str, str], pad: str
    ) -> Iterator[str]:
        """The lines of a block, in which loops around it are `called` otherwise."""
        nodes = [*_flat(nodes)]
        found: list[ast.stmt | None] = [
            self.shorter(trees(node.forms[0].text)[0], called) if isinstance(node, Line) else None
            for node in nodes
        ]
        for n, statement in enumerate(found):
            tile = declared(statement) if statement else None
            if tile and self.times[tile.name] == 1:
                later = range(n + 1, len(nodes))
                at = next((m for m in later if tile.name in names_of(nodes[m])), n)
                into, value = assigned(found[at])
                if into and whole_tile(into) == tile.name and self.is_made(tile, value):
                    found[n] = None
                    found[at] = ast.Assign([ast.Name(tile.name, ast.Store())], value, lineno=0)
        for node, statement in zip(nodes, found, strict=True):
            if isinstance(node, (For, If, Each)):
                inner = called
                if isinstance(node, For):
                    name = without_number(node.variable)
                    if name not in self.stored or name in called.values():
                        name = node.variable
                    inner = {**called, node.variable: name}
                    node = replace(node, variable=name)
                yield pad + header(node)
                yield from self.block(node.body, inner, f"{pad}    ")
            elif isinstance(node, Comment):
                yield f"{pad}# {node.text}"
            elif statement:
                yield f"{pad}{ast.unparse(statement)}"

    def shorter(self, statement: ast.stmt, called: Mapping[str, str]) -> ast.stmt:
        """A statement with whole tiles by their names, and with the names of loops."""

        def change(node: ast.AST) -> ast.AST | None:
            match node:
                case ast.Name(id=name) if name in called:
                    return ast.Name(called[name], node.ctx)
                case ast.Attribute(value=ast.Subscript() as inner) if whole_tile(inner):
                    return node
                case ast.Subscript(value=tile, ctx=ast.Load()) if self.whole(node):
                    return tile
                case ast.Subscript(value=tile) if self.whole(node):
                    return ast.Subscript(tile, ast.Constant(...), node.ctx)
            return None

        made: ast.stmt = mapped(statement, change)
        return made

    def whole(self, node: ast.AST) -> str:
        """The name of a tile of which an expression is all."""
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=parts)):
                return name if list(map(ast.unparse, parts)) == self.ranges.get(name) else ""
        return whole_tile(node)

    def is_made(self, own: Declared, value: ast.expr) -> bool:
        """Whether an instruction's result has by itself the memory, the format and the two axes of the tile that it
        is assigned to."""
        if not isinstance(value, ast.Call) or own.name in names_read(value):
            return False
        function = ast.unparse(value.func)
        if not function.startswith("nisa.") or (own.memory == "psum") != (function in IN_PSUM):
            return False
        indices = (node.slice for node in ast.walk(value) if isinstance(node, ast.Subscript))
        if not all(map(_is_in_order, indices)):
            return False
        said = [ast.unparse(k.value) for k in value.keywords if k.arg == "dtype"]
        if said or function == "nisa.nc_matmul":
            return said in ([], [f"nl.{own.dtype}"])
        return {self.tiles[name].dtype for name in names_read(value) & self.tiles.keys()} == {
            own.dtype
        }


def _flat(nodes: Sequence[NestNode]) -> Iterator[NestNode]:
    """Statements one by one, with those in a place for what is needed later."""
    for node in nodes:
        if isinstance(node, For) and not node.variable:
            yield from _flat(node.body)
        elif isinstance(node, Line) and len(own := trees(node.forms[0].text)) > 1:
            yield from (line(ast.unparse(statement)) for statement in own)
        else:
            yield node


def _is_in_order(index: ast.expr) -> bool:
    """Whether what an index takes has the axes of what it is taken of."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        isinstance(part, (ast.Slice, ast.Call)) or ast.unparse(part) == "..." for part in parts
    )
