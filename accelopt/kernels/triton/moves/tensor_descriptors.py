"""Tensor descriptors in place of pointers: whole tiles by Hopper's copy engine (TMA)."""

from __future__ import annotations

import ast
import copy
import re

from accelopt.kernels.triton.moves.host_constants import NamedNumbers
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    assigned_in,
    called,
    first_line,
    names_in,
)
from accelopt.parsing import parse_expression, parse_python


def descriptor_tiles(source: Source, launch: Launch) -> str | None:
    """Move whole tiles with tensor descriptors (the copy engine of Hopper) in place of pointers.

    Before: `tl.load(p + rows[:, None] * stride0 + columns[None, :] * stride1, mask=..., other=0)`.
    After: `p.load([first_row, first_column])` with a descriptor made in the host function. Tiles
    at the edge read zeros and store only what lies inside, as the masks did. Legal for contiguous
    two-dimensional tensors, a tile that starts at a multiple and spans a constant, and pointers
    that have no other use; otherwise None. What is read in another layout, or begins where the copy
    engine cannot, is copied first.
    """
    rewriter = _DescriptorRewriter(source, launch)
    return rewriter.rewrite()


WHOLE_ROWS = """


def whole_rows(tensor):
    \"\"\"The tensor, or a copy of it where the copy engine cannot read it: in other layouts, and where
    its rows do not begin at multiples of 16 bytes.\"\"\"
    begins = tensor.data_ptr() % 16 or tensor.stride(0) * tensor.element_size() % 16
    return tensor.clone().contiguous() if begins or tensor.stride(-1) != 1 else tensor"""


class _Axis:
    """One axis of a tile: where it begins and the constant it spans, as text."""

    def __init__(self, begin: str, extent: str) -> None:
        self.begin = begin
        self.extent = extent


class _DescriptorRewriter:
    def __init__(self, source: Source, launch: Launch) -> None:
        self.source = source
        self.launch = launch
        self.kernel = launch.kernel
        self.node = copy.deepcopy(launch.kernel.node)
        self.axes = self._find_axes()
        self.blocks: dict[str, tuple[str, str]] = {}
        self.defined = self._definitions()

    def _find_axes(self) -> dict[str, _Axis]:
        """Index vectors `begin + tl.arange(0, EXTENT)` by name."""
        found: dict[str, _Axis] = {}
        for statement in ast.walk(self.node):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = statement.value
                if (
                    isinstance(value, ast.BinOp)
                    and isinstance(value.op, ast.Mod)
                    and called(value.right) == ""
                ):
                    value = value.left
                axis = self._axis_of(value)
                if axis is not None:
                    found[statement.targets[0].id] = axis
        return found

    def _axis_of(self, value: ast.expr) -> _Axis | None:
        if called(value).endswith("arange") and isinstance(value, ast.Call):
            return _Axis("0", ast.unparse(value.args[1]))
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            for one, other in ((value.left, value.right), (value.right, value.left)):
                if called(other).endswith("arange") and isinstance(other, ast.Call):
                    text = ast.unparse(one)
                    if "int64" in text or "arange" in text:
                        return None
                    return _Axis(text, ast.unparse(other.args[1]))
        return None

    def axis(self, index: ast.expr) -> _Axis | None:
        """The axis of an index vector, or of one that a number is added to."""
        if isinstance(index, ast.Name):
            return self.axes.get(index.id)
        if isinstance(index, ast.BinOp) and isinstance(index.op, ast.Add):
            for one, other in ((index.left, index.right), (index.right, index.left)):
                known = self.axes.get(one.id) if isinstance(one, ast.Name) else None
                if known is not None and not names_in(other) & set(self.axes):
                    text = ast.unparse(other)
                    return _Axis(
                        text if known.begin == "0" else f"{known.begin} + {text}", known.extent
                    )
        return self._axis_of(index)

    def _definitions(self) -> dict[str, ast.expr]:
        """Pointer tiles that the kernel gives a name before it loads through them."""
        return {
            statement.targets[0].id: statement.value
            for statement in ast.walk(self.node)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        }

    def rewrite(self) -> str | None:
        """The new source, or None when not every tile of some pointer fits the pattern."""
        advances = self._advances()
        transformer = _TileAccess(self, advances)
        node = transformer.visit(self.node)
        if not transformer.pointers or transformer.failed:
            return None
        node = _without(node, transformer.dropped, advances)
        for name, step in transformer.moving.items():
            _start_offset(node, name, step)
        uses = [
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        ]
        for pointer in transformer.pointers:
            if uses.count(pointer) != transformer.pointers[pointer]:
                return None
        text = ast.unparse(ast.fix_missing_locations(node))
        for pointer in transformer.pointers:
            text = text.replace(f"{pointer}.dtype.element_ty", f"{pointer}.dtype")
        host = self._host_edits(list(transformer.pointers), transformer.stored)
        if host is None:
            return None
        place = Edit(
            self.source.line_start(first_line(self.kernel.node)),
            self.source.end(self.kernel.node),
            text,
        )
        return self.source.edited([place, *host])

    def _advances(self) -> dict[str, tuple[str, str]]:
        """`name += extent * stride` in loops: the step in elements by the pointer's name."""
        found: dict[str, tuple[str, str]] = {}
        for statement in ast.walk(self.node):
            if not (
                isinstance(statement, ast.AugAssign)
                and isinstance(statement.op, ast.Add)
                and isinstance(statement.target, ast.Name)
            ):
                continue
            value = statement.value
            if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
                left, right = ast.unparse(value.left), ast.unparse(value.right)
                found[statement.target.id] = (left, right)
            else:
                found[statement.target.id] = (ast.unparse(value), "")
        return found

    def stride_dimension(self, parameter: str | None) -> int | None:
        """Which dimension of its tensor a stride parameter belongs to; no stride means the last."""
        if parameter is None:
            return 1
        if parameter not in self.kernel.parameters:
            return None
        bound = self.launch.bound(parameter)
        if isinstance(bound, ast.Name) and self.launch.function is not None:
            return _stride_named(self.launch.function, bound.id)
        return None if bound is None else _stride_asked_for(bound)

    def _host_edits(self, pointers: list[str], stored: set[str]) -> list[Edit] | None:
        """Descriptors in place of the tensors in the launch, and the import they need."""
        edits: list[Edit] = []
        named = NamedNumbers(self.source, self.launch)
        for pointer in pointers:
            bound = self.launch.bound(pointer)
            if not isinstance(bound, ast.Name):
                return None
            shape = []
            for extent in self.blocks[pointer]:
                value = self.launch.bound(extent) if extent in self.kernel.parameters else None
                if value is None or names_in(value) & {"meta", "META"}:
                    return None
                shape.append(named.name(extent, value))
            tensor = bound.id if pointer in stored else f"whole_rows({bound.id})"
            text = f"TensorDescriptor.from_tensor({tensor}, [{', '.join(shape)}])"
            edits.append(self.source.replacing(bound, text))
        edits += named.edits
        for node in self.source.tree.body:
            if isinstance(node, ast.Import) and any(
                a.name == "triton.language" for a in node.names
            ):
                line = "\nfrom triton.tools.tensor_descriptor import TensorDescriptor"
                helper = "" if self._has_helper() else WHOLE_ROWS
                end = self.source.end(node)
                last = max(self.source.end(other) for other in self._imports())
                if last == end:
                    return [*edits, Edit(end, end, f"{line}{helper}")]
                return [*edits, Edit(end, end, line), Edit(last, last, helper)]
        return None

    def _imports(self) -> list[ast.stmt]:
        return [n for n in self.source.tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]

    def _has_helper(self) -> bool:
        named = (n.name for n in self.source.tree.body if isinstance(n, ast.FunctionDef))
        return "whole_rows" in named


def _stride_asked_for(node: ast.expr) -> int | None:
    """The dimension of `x.stride(d)` of a matrix."""
    match = re.fullmatch(r".+\.stride\((-?\d)\)", ast.unparse(node))
    return None if match is None else int(match[1]) % 2


def _stride_named(function: ast.FunctionDef, name: str) -> int | None:
    """The dimension that the host code calls the stride of by a name, as in `s, t = x.stride()`."""
    found: list[int | None] = []
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign) and name in assigned_in([statement]):
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Name):
                found.append(_stride_asked_for(value))
            elif isinstance(target, ast.Tuple) and ast.unparse(value).endswith(".stride()"):
                found += [
                    place % 2 for place, one in enumerate(target.elts) if name in names_in(one)
                ]
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=False)
                found += [_stride_asked_for(given) for one, given in pairs if name in names_in(one)]
            else:
                found.append(None)
    return found[0] if len(found) == 1 else None


class _TileAccess(ast.NodeTransformer):
    """Replaces loads and stores of tiles; counts how often each pointer is then used."""

    def __init__(self, owner: _DescriptorRewriter, advances: dict[str, tuple[str, str]]) -> None:
        self.owner = owner
        self.advances = advances
        self.pointers: dict[str, int] = {}
        self.dropped: set[str] = set()
        self.moving: dict[str, str] = {}
        self.stored: set[str] = set()
        self.failed = False

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        name = called(node)
        if name not in ("tl.load", "tl.store") or not node.args:
            return node
        tile = self._tile(node.args[0])
        if tile is None:
            return node
        pointer, offsets, transposed = tile
        other = next((k.value for k in node.keywords if k.arg == "other"), None)
        masked = any(k.arg == "mask" for k in node.keywords)
        if (
            name == "tl.load"
            and masked
            and (other is None or ast.unparse(other) not in ("0.0", "0"))
        ):
            return node
        self.pointers[pointer] = self.pointers.get(pointer, 0) + 1
        at = f"[{', '.join(offsets)}]"
        if name == "tl.load":
            text = f"{pointer}.load({at}){'.T' if transposed else ''}"
        else:
            self.stored.add(pointer)
            value = ast.unparse(node.args[1])
            if f"{pointer}.dtype" in value:
                self.pointers[pointer] += value.count(f"{pointer}.dtype")
            text = f"{pointer}.store({at}, {f'({value}).T' if transposed else value})"
        return parse_expression(text)

    def _tile(self, address: ast.expr) -> tuple[str, list[str], bool] | None:
        """Pointer, offsets in the tensor's own order, and whether the tile lies transposed."""
        moving = None
        if isinstance(address, ast.Name) and address.id in self.owner.defined:
            moving = address.id if address.id in self.advances else None
            self_name, address = address.id, self.owner.defined[address.id]
        else:
            self_name = ""
        terms = _terms(address)
        pointer = next((t.id for t in terms if isinstance(t, ast.Name)), None)
        if pointer is None or pointer not in self.owner.kernel.parameters or len(terms) != 3:
            return None
        axes: dict[int, tuple[_Axis, str | None, int]] = {}
        for term in terms:
            if isinstance(term, ast.Name) and term.id == pointer:
                continue
            parsed = _index_term(term)
            axis = self.owner.axis(parsed[0]) if parsed is not None else None
            if parsed is None or axis is None:
                return None
            _, place, stride = parsed
            dimension = self.owner.stride_dimension(stride)
            if dimension is None or dimension in axes:
                return None
            axes[dimension] = (axis, stride, place)
        if set(axes) != {0, 1}:
            return None
        offsets = []
        for dimension in (0, 1):
            axis, stride, _ = axes[dimension]
            begin = axis.begin
            if moving is not None:
                step, by = self.advances[moving]
                if by == (stride or "") or step == (stride or "") or (not by and stride is None):
                    begin = f"{moving}_at" if begin == "0" else f"{begin} + {moving}_at"
                    extent = by if step == stride else step
                    self.moving[moving] = extent
            offsets.append(begin)
        block = (axes[0][0].extent, axes[1][0].extent)
        if self.owner.blocks.setdefault(pointer, block) != block:
            self.failed = True
            return None
        if self_name:
            self.dropped.add(self_name)
        transposed = axes[0][2] == 1
        return pointer, offsets, transposed


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _terms(node.left) + _terms(node.right)
    return [node]


def _index_term(node: ast.expr) -> tuple[ast.expr, int, str | None] | None:
    """Index vector, its axis in the tile, and its stride, of `v[:, None] * stride`."""
    stride = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        sides = (node.left, node.right)
        index = next((s for s in sides if isinstance(s, ast.Subscript)), None)
        factor = next((s for s in sides if not isinstance(s, ast.Subscript)), None)
        if index is None or not isinstance(factor, ast.Name):
            return None
        node, stride = index, factor.id
    if not isinstance(node, ast.Subscript):
        return None
    shape = ast.unparse(node.slice).strip("()")
    if shape not in (":, None", "None, :"):
        return None
    return node.value, 0 if shape == ":, None" else 1, stride


def _without(
    node: ast.FunctionDef, names: set[str], advances: dict[str, tuple[str, str]]
) -> ast.FunctionDef:
    """The kernel without the definitions of pointer tiles; their steps become steps of offsets."""

    class Drop(ast.NodeTransformer):
        def visit_Assign(self, statement: ast.Assign) -> ast.stmt | None:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and target.id in names:
                if target.id in advances:
                    return parse_python(f"{target.id}_at = 0").body[0]
                return None
            return statement

        def visit_AugAssign(self, statement: ast.AugAssign) -> ast.stmt:
            if isinstance(statement.target, ast.Name) and statement.target.id in names:
                name = statement.target.id
                return parse_python(f"{name}_at += {advances[name][0]}").body[0]
            return statement

    result = Drop().visit(node)
    assert isinstance(result, ast.FunctionDef)
    return result


def _start_offset(node: ast.FunctionDef, name: str, step: str) -> None:
    """Write the step of a moving tile in elements along its own axis."""
    for statement in ast.walk(node):
        if isinstance(statement, ast.AugAssign) and ast.unparse(statement.target) == f"{name}_at":
            statement.value = parse_expression(step)
