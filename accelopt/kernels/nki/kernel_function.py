"""Which function of a file is the kernel, how it is bound and how it is launched: the one answer.

A file says it with `kernel = name`, `kernel = name[grid]`, `kernel = make(...)`, a function of that
name, or by having one decorated function that no other one calls. `chosen` takes the object of a
module that was loaded; `kernel_function` reads the same from the text, which is all that there is
before a trace. A Program knows the line of its function: `traced_function` finds that one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

from accelopt.kernel_source import KERNEL_NAMES
from accelopt.parsing import names_read, parse_python

DECORATORS = frozenset({"jit", "trace", "baremetal", "benchmark", "profile", "simulate"})
"""What makes a kernel of a function, in either dialect, by its last name."""

Value = ast.expr | ast.FunctionDef | ast.alias
"""What a name may be bound to."""


class NoKernel(ValueError):
    """It is not clear which function is the kernel; the sentence says what to write."""


@dataclass(frozen=True)
class KernelFunction:
    """The function of a kernel. `entry` is the module's name for what is called, `path` the names of
    the functions around `definition` and its own, `grid` its launch as the text says it (empty where
    there is none). `bound` are parameters with the text of a value that functools.partial gave them.
    With `host`, a plain function launches the kernel, and passes so many (`passed`) of its own
    parameters on."""

    entry: str
    path: tuple[str, ...]
    definition: ast.FunctionDef = field(compare=False, repr=False)
    grid: str = ""
    bound: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    passed: int | None = None

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.path[-1]

    @property
    def line(self) -> int:
        """The line of its first decorator or `def`, as Python counts a function's first line."""
        above = [decorator.lineno for decorator in self.definition.decorator_list]
        return min([self.definition.lineno, *above])

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that a caller gives by position."""
        own = self.definition.args
        names = [a.arg for a in (*own.posonlyargs, *own.args) if a.arg not in self.bound]
        return tuple(names[: self.passed])


def kernel_function(source: str) -> KernelFunction:
    """The kernel of a text. Raises NoKernel where it is not clear which function that is, or where it
    is not in this text."""
    found = _read(source)
    if isinstance(found, str):
        raise NoKernel(found)
    return found


def kernel_in(source: str) -> KernelFunction | None:
    """The kernel of a text; None where `kernel_function` would refuse."""
    found = _read(source)
    return None if isinstance(found, str) else found


def kernel_parameters(source: str) -> tuple[str, ...]:
    """The parameters of the kernel in a text, in order; none where it holds no kernel."""
    found = kernel_in(source)
    return found.parameters if found else ()


def traced_function(source: str, line: int) -> KernelFunction:
    """The kernel of a text of which a trace says that its function begins at `line`. Raises NoKernel
    where no function of the text does."""
    found = _read(source)
    if isinstance(found, KernelFunction) and found.line == line:
        return found
    for path, definition in _definitions(_tree(source).body, ()):
        made = KernelFunction(path[0], path, definition)
        if made.line == line:
            return replace(made, entry=kernel_entry(source) or path[0])
    raise NoKernel("the kernel's function is in another file than this one")


def chosen(names: Mapping[str, Any], source: str) -> Any:
    """The kernel among the `names` of a module that was loaded from `source`. Raises NoKernel."""
    for name in KERNEL_NAMES:
        if name in names:
            return names[name]
    try:
        entry = _entry(_Module(_tree(source)))
    except NoKernel:
        own = names.get("__name__")
        made = {id(value): value for value in names.values() if _is_kernel(value, own)}
        if len(made) == 1:
            return made.popitem()[1]
        raise
    if entry not in names:
        raise NoKernel(f"the file's {entry} is gone when the file has run")
    return names[entry]


def host_launch(source: str, name: str) -> bool:
    """Whether the file's function of this name is a plain one that launches a kernel."""
    module = _Module(_tree(source))
    definition = module.bindings.get(name)
    return isinstance(definition, ast.FunctionDef) and _launched(definition, module) is not None


def _is_kernel(value: object, module: object) -> bool:
    """True for what nki.jit made of a function of this module: it keeps that function as `func`."""
    own = getattr(getattr(value, "func", None), "__module__", None)
    return own == module and callable(value) and not isinstance(value, partial)


def _tree(source: str) -> ast.Module:
    """Raises NoKernel for a text that is not Python."""
    try:
        return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NoKernel(f"the text is not Python: {error}") from None


@lru_cache(maxsize=256)
def _read(source: str) -> KernelFunction | str:
    """The kernel of a text, or why there is none."""
    try:
        module = _Module(_tree(source))
        return module.function(_entry(module))
    except NoKernel as error:
        return str(error)
    except RecursionError:
        return "the text nests too deeply"


def kernel_entry(source: str) -> str:
    """The name of the kernel in a text's module; empty where the text does not say it."""
    try:
        return _entry(_Module(_tree(source)))
    except NoKernel:
        return ""


class _Module:
    """What the names of a module are bound to."""

    def __init__(self, tree: ast.Module) -> None:
        self._before: dict[int, Value] = {}  # by the value bound, what the name was bound to before
        self.bindings = self._scope(tree.body)

    def _scope(self, body: Sequence[ast.stmt]) -> dict[str, Value]:
        names: dict[str, Value] = {}
        for name, value in _bound(body):
            if name in names:
                self._before[id(value)] = names[name]
            names[name] = value
        return names

    def before(self, value: Value) -> Value | None:
        """What the name that is bound to a value was bound to before."""
        return self._before.get(id(value))

    def function(self, entry: str) -> KernelFunction:
        """The kernel that the name `entry` is. Raises NoKernel."""
        value = self.bindings[entry]
        start = KernelFunction(entry, (entry,), _NOTHING)
        if isinstance(value, ast.FunctionDef):
            launch = _launched(value, self)
            if launch is not None:
                return self._hosted(value, launch, replace(start, host=entry))
        return self._resolved(value, start, (self.bindings,), (), frozenset())

    def _hosted(
        self, host: ast.FunctionDef, launch: ast.Call, start: KernelFunction
    ) -> KernelFunction:
        found = self._resolved(launch.func, start, (self.bindings,), (), frozenset())
        given = [argument.arg for argument in (*host.args.posonlyargs, *host.args.args)]
        passed = [a.id if isinstance(a, ast.Name) else "" for a in launch.args]
        if launch.keywords or passed != given:
            raise NoKernel(
                f"{host.name} does not pass its own parameters to {found.name} in their order: write "
                f"a line `kernel = {ast.unparse(launch.func)}`, with numbers in the grid"
            )
        return replace(found, passed=len(given))

    def _resolved(
        self,
        value: Value,
        found: KernelFunction,
        scopes: tuple[Mapping[str, Value], ...],
        path: tuple[str, ...],
        seen: frozenset[int],
    ) -> KernelFunction:
        """The function that a value is; `scopes` are the names around it, the innermost first, and
        `path` the functions that these are of. Raises NoKernel."""
        if id(value) in seen:
            raise NoKernel(f"the name {found.entry} is bound in a circle")
        seen |= {id(value)}
        match value:
            case ast.FunctionDef():
                return replace(found, path=(*path, value.name), definition=value)
            case ast.alias():
                raise NoKernel(
                    f"{found.entry} is imported: its function {value.name} is in another file"
                )
            case ast.Name(id=name):
                for outer, scope in enumerate(scopes):
                    if name in scope:
                        own = path[: len(path) - outer]
                        named = scope[name]
                        while id(named) in seen and id(named) in self._before:
                            named = self._before[id(named)]
                        return self._resolved(named, found, scopes[outer:], own, seen)
            case ast.Subscript(value=inner, slice=grid):
                gridded = replace(found, grid=found.grid or ast.unparse(grid))
                return self._resolved(inner, gridded, scopes, path, seen)
            case ast.Call():
                return self._made(value, found, scopes, path, seen)
        raise NoKernel(
            f"{found.entry} is {ast.unparse(value)[:60]}: which function that is cannot be read from "
            "the text"
        )

    def _made(
        self,
        call: ast.Call,
        found: KernelFunction,
        scopes: tuple[Mapping[str, Value], ...],
        path: tuple[str, ...],
        seen: frozenset[int],
    ) -> KernelFunction:
        """The function that a call makes: of a decorator, functools.partial, or a function of the
        file that returns one."""
        callee = call.func
        if name_of(callee) == "partial" and call.args:
            inner = self._resolved(call.args[0], found, scopes, path, seen)
            bound = dict(zip(inner.parameters, map(ast.unparse, call.args[1:]), strict=False))
            bound |= {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg}
            return replace(inner, bound={**bound, **inner.bound})
        if isinstance(callee, ast.Attribute) and callee.attr == "with_schedule":
            return self._resolved(callee.value, found, scopes, path, seen)
        if isinstance(callee, ast.Name):
            for outer, scope in enumerate(scopes):
                factory = scope.get(callee.id)
                if isinstance(factory, ast.FunctionDef):
                    own = path[: len(path) - outer]
                    inside = {**_parameters(factory), **self._scope(factory.body)}
                    for value in _returned(factory):
                        return self._resolved(
                            value, found, (inside, *scopes[outer:]), (*own, factory.name), seen
                        )
        if call.args:
            return self._resolved(call.args[0], found, scopes, path, seen)
        raise NoKernel(
            f"{found.entry} is made by {ast.unparse(callee)[:60]}, which is not in the text"
        )


_NOTHING = ast.FunctionDef(
    name="",
    args=ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]),
    body=[],
    decorator_list=[],
    lineno=0,
)


def _entry(module: _Module) -> str:
    """The module's name of the kernel. Raises NoKernel with what to write."""
    for name in KERNEL_NAMES:
        if name in module.bindings:
            return name
    kernels = [name for name, value in module.bindings.items() if _makes_a_kernel(value, module)]
    used = {name for kernel in kernels for name in _reached(kernel, module) - {kernel}}
    free = [name for name in kernels if name not in used] or kernels
    hosts = [
        name
        for name, value in module.bindings.items()
        if isinstance(value, ast.FunctionDef) and not name.startswith(("_", "test"))
        and _launched(value, module) is not None
    ]  # fmt: skip
    if len(free) == 1:
        launching = [host for host in hosts if free[0] in names_read(module.bindings[host])]
        return launching[0] if len(launching) == 1 else free[0]
    if len(hosts) == 1:
        return hosts[0]
    if free:
        listed = f"{', '.join(free[:-1])} and {free[-1]}"
        raise NoKernel(
            f"the file has several kernels ({listed}) and none is named "
            f"{' or '.join(KERNEL_NAMES)}: add a line that says which, such as `kernel = {free[-1]}`"
        )
    raise NoKernel(
        f"the file defines no function named {' or '.join(KERNEL_NAMES)}, and none with @nki.jit: "
        "write @nki.jit above the kernel, or add a line `kernel = ...` that says which function it is"
    )


def _reached(name: str, module: _Module) -> set[str]:
    """The names of the file that what a name is bound to reads, and what these read."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        value: Value | None = module.bindings[waiting.pop()]
        while value is not None:
            below = names_read(value) & module.bindings.keys()
            waiting += below - found
            found |= below
            value = module.before(value)
    return found


def _makes_a_kernel(value: Value, module: _Module) -> bool:
    """Whether a binding is a decorated function, or what a decorator, a launch grid or a partial made
    of one."""
    match value:
        case ast.FunctionDef(decorator_list=decorators):
            return any(is_kernel_decorator(one) for one in decorators)
        case ast.Subscript(value=ast.Name(id=name)) | ast.Name(id=name):
            inner = module.bindings.get(name)
            if inner is value:
                inner = module.before(value)
            return inner is not None and _makes_a_kernel(inner, module)
        case ast.Call(func=called):
            if name_of(called) == "partial":
                return bool(value.args) and _makes_a_kernel(value.args[0], module)
            return bool(value.args) and is_kernel_decorator(called)
    return False


def is_kernel_decorator(node: ast.expr) -> bool:
    """Whether a decorator makes a kernel of what it stands above."""
    called = node.func if isinstance(node, ast.Call) else node
    if name_of(called) == "partial" and isinstance(node, ast.Call) and node.args:
        return is_kernel_decorator(node.args[0])
    return name_of(called) in DECORATORS and not _of_another_package(called)


def _of_another_package(node: ast.expr) -> bool:
    """`torch.jit.trace`, `jax.jit`, `numba.jit`: of the same name, and no kernel's."""
    return ast.unparse(node).partition(".")[0] in ("torch", "jax", "numba", "triton")


def name_of(node: ast.expr) -> str:
    """The last name of a function or module: `multiply` of `nl.multiply`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _own_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or function that bind its names, those of its blocks included."""
    for node in body:
        yield node
        if isinstance(node, ast.If) and not is_main(node):
            yield from _own_statements((*node.orelse, *node.body))
        elif isinstance(node, ast.Try):
            handled = [line for handler in node.handlers for line in handler.body]
            yield from _own_statements((*handled, *node.orelse, *node.body, *node.finalbody))
        elif isinstance(node, (ast.With, ast.For, ast.While)):
            yield from _own_statements(node.body)


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, Value]]:
    """The names of a module or function with what they are bound to, in the order of the text."""
    for node in _own_statements(body):
        match node:
            case ast.FunctionDef(name=name):
                yield name, node
            case ast.Assign(targets=targets, value=value):
                yield from ((t.id, value) for t in targets if isinstance(t, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((a.asname or a.name.partition(".")[0], a) for a in aliases)


def _parameters(function: ast.FunctionDef) -> dict[str, Value]:
    """Parameters, of which nobody knows what they are bound to."""
    own = function.args
    return {a.arg: ast.Constant(None) for a in (*own.posonlyargs, *own.args, *own.kwonlyargs)}


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """What a function returns, the last first."""
    for node in reversed(list(_own_statements(function.body))):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


def _launched(function: ast.FunctionDef, module: _Module) -> ast.Call | None:
    """The launch that a plain function returns the result of: of a grid, or of a kernel with nothing
    done but to call it; None where it does not."""
    own = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    if function.decorator_list or not own:
        return None
    values = dict(_bound(function.body))
    body = function.body[ast.get_docstring(function) is not None :]
    for value in _returned(function):
        given = values.get(value.id) if isinstance(value, ast.Name) else value
        if not isinstance(given, ast.Call):
            return None
        if isinstance(given.func, ast.Subscript):
            return given
        called = module.bindings.get(given.func.id) if isinstance(given.func, ast.Name) else None
        alone = len(body) == 1 + isinstance(value, ast.Name) and not given.keywords
        passed = [a.id if isinstance(a, ast.Name) else "" for a in given.args]
        if called is not None and alone and passed == own and _makes_a_kernel(called, module):
            return given
    return None


def _definitions(
    body: Sequence[ast.stmt], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for node in _own_statements(body):
        if isinstance(node, ast.FunctionDef):
            yield (*path, node.name), node
            yield from _definitions(node.body, (*path, node.name))


def is_main(node: ast.stmt) -> bool:
    """True for `if __name__ == "__main__":` without an else."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__")
    )
