"""Programs that find their own work, where the host read index tensors to tell them."""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from accelopt.kernels.triton.moves.launches import (
    PlaceOfProgram,
    launch_loop,
    moved_arguments,
    stored_tensor,
)
from accelopt.kernels.triton.moves.loops import fresh_name
from accelopt.kernels.triton.moves.source import (
    WORK,
    Edit,
    Launch,
    Source,
    add_parameter,
    addressed_parameters,
    assigned_in,
    called,
    first_line,
    grid_sizes,
    names_in,
    target_of,
)
from accelopt.parsing import parse_expression, parse_python

STEPS = "STEPS"
IN_KERNEL = {"triton.cdiv": "tl.cdiv", "min": "tl.minimum", "max": "tl.maximum"}
OTHER_WORK = ("atomic", "num_programs", "make_block_ptr", "make_tensor_descriptor")
HOST_COPIES = ("to", "cpu", "tolist", "contiguous", "long", "int", "numpy")


class _NotFound(Exception):
    """Something of a step is not computed of index tensors."""


def found_work(source: Source, launch: Launch) -> str | None:
    """Launch a kernel once for all steps of a host loop, each program finding its step by itself.

    Before: `for i in range(n): size = b[i + 1].item() - b[i].item(); kernel[(cdiv(size, B), h)]
    (q, out, i)`. After: one launch of `cdiv(rows of out, B) + n` programs, each of which loads all
    of b, adds up how many programs each step takes, and counts the steps that end before it. The
    host reads nothing, so it does not wait for the device. Legal as `one_launch` is, where steps
    are made of whole numbers from index tensors, and the rows of the output are shared out among
    them: more programs than that would have no place, which the referee sees by the NaN there.
    """
    loop, statement = launch_loop(source, launch)
    sizes = grid_sizes(launch)
    if loop is None or statement is None or sizes is None or launch.function is None:
        return None
    kernel = launch.kernel
    if {WORK, STEPS} & set(kernel.parameters) or kernel.node.args.defaults:
        return None
    changing = assigned_in([loop])
    uneven = [place for place, size in enumerate(sizes) if names_in(size) & changing]
    moved = moved_arguments(launch, changing)
    tensor = stored_tensor(launch)
    if len(uneven) != 1 or not moved or tensor is None or called(loop.iter) != "range":
        return None
    assert isinstance(loop.iter, ast.Call)
    if len(loop.iter.args) != 1 or not _is_apart(launch):
        return None
    try:
        return _Found(source, launch, loop, sizes, uneven[0], moved, tensor).text()
    except _NotFound:
        return None


def _is_apart(launch: Launch) -> bool:
    """Whether a kernel asks nothing else of its grid, and loads from nothing that it stores to."""
    node = launch.kernel.node
    if any(word in ast.unparse(node) for word in OTHER_WORK):
        return False
    loaded, stored = addressed_parameters(node, "tl.load"), addressed_parameters(node, "tl.store")
    if loaded is None or stored is None:
        return False
    bound = [{ast.dump(a) for a in map(launch.bound, names) if a} for names in (loaded, stored)]
    return not bound[0] & bound[1]


class _Block(NamedTuple):
    """How many rows a program takes: the kernel's parameter, and what the host calls it."""

    parameter: str
    on_host: str


def _block(launch: Launch, size: ast.expr, axis: int) -> _Block:
    """What `triton.cdiv(rows, block)` divides by; raises _NotFound where it is no parameter."""
    if not (isinstance(size, ast.Call) and called(size) == "triton.cdiv" and len(size.args) == 2):
        raise _NotFound
    grid = launch.grid
    if isinstance(grid, ast.Name) and launch.function is not None:
        grid = next(
            n.value
            for n in ast.walk(launch.function)
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == grid.id
        )
    if isinstance(grid, ast.Lambda) and isinstance(grid.body, ast.Tuple):
        block = grid.body.elts[axis].args[1]  # type: ignore[attr-defined]
        if isinstance(block, ast.Subscript) and isinstance(block.slice, ast.Constant):
            name = str(block.slice.value)
            if name in launch.kernel.constants:
                return _Block(name, f"META['{name}']")
    if isinstance(size.args[1], ast.Name):
        text = size.args[1].id
        for parameter in launch.kernel.constants:
            bound = launch.bound(parameter)
            if isinstance(bound, ast.Name) and bound.id == text:
                return _Block(parameter, text)
    raise _NotFound


class _Found:
    """The kernel's new head and the launch, from a host loop."""

    def __init__(
        self,
        source: Source,
        launch: Launch,
        loop: ast.For,
        sizes: list[ast.expr],
        axis: int,
        moved: dict[str, str],
        tensor: str,
    ) -> None:
        assert launch.function is not None and isinstance(loop.iter, ast.Call)
        self.source, self.launch, self.loop = source, launch, loop
        self.sizes, self.axis, self.moved, self.tensor = sizes, axis, moved, tensor
        self.node = copy.deepcopy(launch.kernel.node)
        self.step_count = ast.unparse(loop.iter.args[0])
        words = ("step", "steps", "step_count", "step_is_taken", "ends", "place", "program")
        self.names = {word: fresh_name(word, self.node) for word in words}
        self.block = _block(launch, sizes[axis], axis)
        self.pointers: dict[str, str] = {}
        self.vectors: dict[str, str] = {}

    def text(self) -> str:
        """The changed source; raises _NotFound."""
        lines = self._lines()
        node = PlaceOfProgram(self.axis, self.names["place"]).visit(self.node)
        node.body[:0] = parse_python("\n".join(lines)).body
        node.args.args = [a for a in node.args.args if a.arg not in self.moved]
        given = [(self.names["step_count"], self.step_count, False)]
        known = {a.arg for a in node.args.args}
        given += [
            (p, f"{t}.contiguous()", False) for t, p in self.pointers.items() if p not in known
        ]
        given.append((STEPS, f"triton.next_power_of_2({self.step_count})", True))
        for name, _, is_constant in given:
            add_parameter(node.args, name, constant=is_constant)
        return self._edited(node, [(name, value) for name, value, _ in given])

    def _lines(self) -> list[str]:
        """What the kernel does first: step and place of its program."""
        n = self.names
        assert isinstance(self.loop.target, ast.Name)
        steps, end = n["steps"], n["step_count"]
        lines = [f"{steps} = tl.arange(0, {STEPS})", f"{n['step_is_taken']} = {steps} < {end}"]
        self.vectors[self.loop.target.id] = steps
        needed = self._needed()
        for statement in self.loop.body:
            name = target_of(statement)
            if name is not None and isinstance(statement, ast.Assign):
                if name in needed:
                    own = fresh_name(f"{name}_of_steps", self.node)
                    lines.append(f"{own} = {self._written(statement.value)}")
                    self.vectors[name] = own
            elif isinstance(statement, ast.If):
                lines.append(f"{n['step_is_taken']} &= {self._condition(statement)}")
            elif not any(inner is self.launch.call for inner in ast.walk(statement)):
                raise _NotFound
        size = self._size()
        before = f"{n['ends']} <= {n['program']}"
        lines += [
            f"{n['ends']} = tl.cumsum(tl.where({n['step_is_taken']}, {size}, 0), axis=0)",
            f"{n['program']} = tl.program_id({self.axis})",
            f"{n['step']} = tl.sum(({before}).to(tl.int32), axis=0)",
            f"if {n['step']} >= {end}:\n    return",
            f"{n['place']} = {n['program']} - tl.max(tl.where({before}, {n['ends']}, 0), axis=0)",
        ]
        for parameter, name in self.moved.items():
            vector = self.vectors.get(name)
            if vector is None:
                raise _NotFound
            value = f"tl.sum(tl.where({steps} == {n['step']}, {vector}, 0), axis=0)"
            lines.append(f"{parameter} = {n['step'] if vector == steps else value}")
        return lines

    def _size(self) -> str:
        """How many programs each step takes."""
        rows = self.sizes[self.axis].args[0]  # type: ignore[attr-defined]
        return f"tl.cdiv({self._written(rows)}, {self.block.parameter})"

    def _condition(self, statement: ast.If) -> str:
        """What a step must fulfil to come to its launch, or to what follows a condition."""
        test = self._written(statement.test)
        if statement.orelse:
            raise _NotFound
        if all(isinstance(inner, ast.Continue) for inner in statement.body):
            return f"~({test})"
        [only] = statement.body if len(statement.body) == 1 else [None]
        if isinstance(only, ast.Expr) and only.value is self.launch.call:
            return test
        raise _NotFound

    def _needed(self) -> set[str]:
        """Names of the loop that conditions, the number of programs and the launch are made of."""
        assert isinstance(self.loop.target, ast.Name)
        needed = names_in(self.sizes[self.axis]) | set(self.moved.values())
        needed |= {n for s in self.loop.body if isinstance(s, ast.If) for n in names_in(s.test)}
        for statement in reversed(self.loop.body):
            if isinstance(statement, ast.Assign) and assigned_in([statement]) & needed:
                needed |= names_in(statement.value)
        return needed

    def _written(self, node: ast.expr) -> str:
        """An expression of the host's loop for all steps at once."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return str(node.value)
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.BinOp) and isinstance(
            node.op, (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
        ):
            left, right = self._written(node.left), self._written(node.right)
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}[type(node.op)]
            return f"({left} {sign} {right})"
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = [self._written(side) for side in (node.left, node.comparators[0])]
            shape = ast.Compare(ast.Name("a"), node.ops, [ast.Name("b")])
            sign = ast.unparse(ast.fix_missing_locations(shape))[1:-1]
            return f"({sides[0]}{sign}{sides[1]})"
        if isinstance(node, ast.BoolOp):
            sign = " | " if isinstance(node.op, ast.Or) else " & "
            return f"({sign.join(self._written(value) for value in node.values)})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return f"(~{self._written(node.operand)})"
        return self._called(node)

    def _called(self, node: ast.expr) -> str:
        if isinstance(node, ast.Call) and called(node) in IN_KERNEL and len(node.args) == 2:
            given = ", ".join(self._written(argument) for argument in node.args)
            return f"{IN_KERNEL[called(node)]}({given})"
        if isinstance(node, ast.Call) and called(node) == "int" and len(node.args) == 1:
            return self._written(node.args[0])
        if isinstance(node, ast.Call) and called(node).endswith(".item") and not node.args:
            assert isinstance(node.func, ast.Attribute)
            node = node.func.value
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
            raise _NotFound
        if isinstance(node.slice, (ast.Slice, ast.Tuple)):
            raise _NotFound
        place = self._written(node.slice)
        if self.names["steps"] not in place:
            raise _NotFound
        pointer = self._pointer(node.value.id)
        mask = f"{self.names['steps']} < {self.names['step_count']}"
        return f"tl.load({pointer} + {place}, mask={mask}, other=0)"

    def _name(self, name: str) -> str:
        if name in self.vectors:
            return self.vectors[name]
        for parameter in self.launch.kernel.parameters:
            bound = self.launch.bound(parameter)
            if isinstance(bound, ast.Name) and bound.id == name and parameter not in self.moved:
                return parameter
        raise _NotFound

    def _pointer(self, name: str) -> str:
        """The kernel's parameter for a tensor that the host reads values of."""
        name = tensor_of(self.launch.function, name)
        for parameter in self.launch.kernel.parameters:
            bound = self.launch.bound(parameter)
            if isinstance(bound, ast.Name) and bound.id == name:
                return parameter
        return self.pointers.setdefault(name, fresh_name(f"{name}_values_ptr", self.node))

    def _edited(self, node: ast.FunctionDef, given: list[tuple[str, str]]) -> str:
        source, launch, loop = self.source, self.launch, self.loop
        call = copy.deepcopy(launch.call)
        parameters = launch.kernel.parameters
        call.args = [a for p, a in zip(parameters, call.args, strict=False) if p not in self.moved]
        call.keywords = [k for k in call.keywords if k.arg not in self.moved]
        call.keywords += [ast.keyword(name, parse_expression(value)) for name, value in given]
        grid = [ast.unparse(one) for one in self.sizes]
        whole = f"triton.cdiv({self.tensor}.shape[0], {self.block.on_host})"
        grid[self.axis] = f"{whole} + {self.step_count}"
        given_by = "lambda META: " if self.block.on_host.startswith("META") else ""
        assert isinstance(call.func, ast.Subscript)
        call.func.slice = parse_expression(f"{given_by}({', '.join(grid)},)")
        own = launch.kernel.node
        text = ast.unparse(ast.fix_missing_locations(node))
        return source.edited(
            [
                source.replacing(loop, f"if {self.step_count} > 0:\n{source.indentation(loop)}    {ast.unparse(call)}"),
                Edit(source.line_start(first_line(own)), source.end(own), text),
                *unread(source, launch.function, loop),
            ]
        )  # fmt: skip


def tensor_of(function: ast.FunctionDef | None, name: str) -> str:
    """The tensor whose values a name holds on the host; raises _NotFound where it is stored twice."""
    assert function is not None
    for _ in function.body:
        made = [
            n.value
            for n in ast.walk(function)
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == name
        ]
        if len(made) != 1:
            break
        value = made[0]
        while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
            if value.func.attr not in HOST_COPIES:
                break
            value = value.func.value
        if value is made[0] or not isinstance(value, ast.Name) or value.id == name:
            break
        if not _is_read_by(made[0]):
            break
        name = value.id
    return name


def _is_read_by(value: ast.expr) -> bool:
    """Whether an expression copies a tensor's values to the host."""
    return any(word in ast.unparse(value) for word in (".cpu()", ".tolist()", ".numpy()"))


def unread(source: Source, function: ast.FunctionDef | None, loop: ast.stmt) -> list[Edit]:
    """What takes out the copies to the host that nothing but a loop reads."""
    assert function is not None
    inside = {id(inner) for inner in ast.walk(loop)}
    edits = []
    for statement in function.body:
        name = target_of(statement)
        if name is None or not isinstance(statement, ast.Assign):
            continue
        if not _is_read_by(statement.value):
            continue
        readers = [
            n
            for n in ast.walk(function)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        ]
        if all(id(reader) in inside for reader in readers):
            edits.append(source.replacing(statement, "pass"))
    return edits
