"""A kernel's source as a small tree: loops and lines, with libcst nodes at the leaves.

Parsing keeps every line's own text, so a kernel that no move touches is given back as it was.
Trees are never changed: an edit makes a new `Kernel`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from functools import cache, lru_cache

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from accelopt.errors import AcceloptError
from accelopt.kernels.nki.kernel_function import NoKernel, kernel_function
from accelopt.kernels.nki.moves.reading.signatures import LOOPS, MODULES, SUBMODULES
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.parsing import parse_python

StatementPath = tuple[int, ...]

DEEPEST = 100
"""Levels of nesting in a kernel that is read; hand-written ones have about 20."""


class NotAKernel(AcceloptError):
    """The text is not Python, or holds no function that could be the kernel."""


class IllegalMove(AcceloptError):
    """A move does not apply here; the message says which condition fails."""


@dataclass(frozen=True, eq=False)
class SourceStatement:
    """One statement that is not a counted loop. `number`: its line in the text it was read from."""

    node: cst.SimpleStatementLine | cst.BaseCompoundStatement
    number: int = 0


@dataclass(frozen=True, eq=False)
class SourceLoop:
    """A `for` over one of NKI's ranges. `node` is the libcst statement; its body is not used."""

    node: cst.For
    body: tuple[SourceNode, ...]
    number: int = 0

    @property
    def variable(self) -> str:
        """The loop's variable."""
        assert isinstance(self.node.target, cst.Name)
        return self.node.target.value


SourceNode = SourceStatement | SourceLoop


@dataclass(frozen=True, eq=False)
class ParsedKernel:
    """A parsed kernel: the module around it, its body as a tree, and what is known of arguments."""

    module: cst.Module
    function: tuple[str, ...]  # the names of the functions around it and its own
    body: tuple[SourceNode, ...]
    aliases: Mapping[str, str]
    arguments: Mapping[str, ParameterFacts] = field(default_factory=dict)

    def with_body(self, body: Sequence[SourceNode]) -> ParsedKernel:
        """The same kernel with another body."""
        return replace(self, body=tuple(body))

    def at(self, path: StatementPath) -> SourceNode:
        """The node at a path of positions from the kernel's body."""
        nodes, node = self.body, None
        for position in path:
            node = nodes[position]
            nodes = node.body if isinstance(node, SourceLoop) else ()
        assert node is not None
        return node

    def replaced(self, path: StatementPath, nodes: Sequence[SourceNode]) -> ParsedKernel:
        """With the node at `path` replaced by `nodes` (none: removed)."""
        return self.with_body(_replaced(self.body, path, nodes))

    def walk(self) -> Iterator[tuple[StatementPath, SourceNode]]:
        """Every node with its path, in program order."""
        return _walk(self.body, ())

    def loop(self, variable: str) -> tuple[StatementPath, SourceLoop]:
        """The loop over `variable`; variables are unique once names are apart."""
        for path, node in self.walk():
            if isinstance(node, SourceLoop) and node.variable == variable:
                return path, node
        raise KeyError(variable)

    @property
    def definition(self) -> cst.FunctionDef:
        """The kernel's function as parsed."""
        return _function(self.module, self.function)

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters, in order."""
        return [parameter.name.value for parameter in self.definition.params.params]

    def canonical(self, expression: cst.BaseExpression) -> str | None:
        """`nl.load`, `nisa.activation`, `range` ... for a dotted name, whatever it is imported as."""
        if isinstance(expression, cst.Name):
            return self.aliases.get(expression.value, expression.value)
        if isinstance(expression, cst.Attribute):
            base = self.canonical(expression.value)
            if base is not None:
                dotted = f"{base}.{expression.attr.value}"
                return SUBMODULES.get(dotted, dotted)
        return None

    def spelled(self, canonical: str) -> str:
        """How this kernel's text writes a canonical name: `nl.load`, `language.load`, ..."""
        module, _, rest = canonical.partition(".")
        for name, meaning in self.aliases.items():
            if meaning == module and rest:
                return f"{name}.{rest}"
        long = {"nl": "nki.language", "nisa": "nki.isa"}.get(module)
        return self.spelled(f"{long}.{rest}") if long else canonical

    def render(self) -> str:
        """The source text."""
        definition = self.definition
        body = definition.body
        assert isinstance(body, cst.IndentedBlock)
        block = body.with_changes(body=_lower(self.body))
        module = self.module.deep_replace(definition, definition.with_changes(body=block))
        assert isinstance(module, cst.Module)
        return module.code


def parse(text: str, arguments: Mapping[str, ParameterFacts] | None = None) -> ParsedKernel:
    """Read a kernel. Raises NotAKernel when the text holds none."""
    _refuse_depth(text)
    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
    except cst.ParserSyntaxError as error:
        raise NotAKernel(f"the kernel is not Python: {error}") from error
    module = wrapper.module
    positions = wrapper.resolve(PositionProvider)
    try:
        function = kernel_function(text).path
    except NoKernel as error:
        raise NotAKernel(str(error)) from None
    definition = _function(module, function)
    if not isinstance(definition.body, cst.IndentedBlock):
        raise NotAKernel(f"kernel {definition.name.value} has no body")

    def lift(statement: cst.BaseStatement) -> list[SourceNode]:
        number = positions[statement].start.line
        if isinstance(statement, cst.For) and _is_counted(statement, aliases):
            inner = [node for child in statement.body.body for node in lift(child)]  # type: ignore[arg-type]
            return [SourceLoop(statement, tuple(inner), number)]
        if isinstance(statement, cst.SimpleStatementLine):
            return [
                SourceStatement(_single(statement, part, first=index == 0), number)
                for index, part in enumerate(statement.body)
                if not _is_remark(part)
            ]
        assert isinstance(statement, cst.BaseCompoundStatement)
        return [SourceStatement(statement, number)]

    aliases = _aliases(module)
    body: list[SourceNode] = []
    for index, statement in enumerate(definition.body.body):
        lifted = lift(statement)
        if index == 0 and not lifted:  # the docstring
            assert isinstance(statement, cst.SimpleStatementLine)
            lifted = [SourceStatement(statement, positions[statement].start.line)]
        body += lifted
    return ParsedKernel(module, function, tuple(body), aliases, arguments or {})


def _refuse_depth(text: str) -> None:
    """NotAKernel for text whose nesting would overflow the stack of libcst's parser or visitors.

    Python's own parser says so safely, and refuses more than 200 parentheses in each other.
    """
    try:
        level: list[ast.AST] = [parse_python(text)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAKernel(f"the kernel is not Python: {error}") from error
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise NotAKernel(f"the kernel's expressions and blocks nest deeper than {DEEPEST} levels")


def line(code: str, number: int = 0) -> SourceStatement:
    """One statement from text."""
    node = cst.parse_statement(code)
    assert isinstance(node, cst.SimpleStatementLine)
    return SourceStatement(node, number)


def loop(header: str, body: Sequence[SourceNode], number: int = 0) -> SourceLoop:
    """A loop from its header's text, without the colon."""
    node = cst.parse_statement(f"{header}:\n    pass\n")
    assert isinstance(node, cst.For)
    return SourceLoop(node, tuple(body), number)


def code_of(node: cst.CSTNode) -> str:
    """The text of a node."""
    return cst.Module([]).code_for_node(node).strip()


def parts(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all nodes in it, outer ones first; what a read-only visitor would see, sooner."""
    yield node
    for name in _fields(type(node)):
        value = getattr(node, name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if _is_node(item.__class__):
                yield from parts(item)


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    names = [field.name for field in fields(kind)]
    return tuple(name for name in names if not name.startswith(("whitespace", "leading_lines")))


@cache
def _is_node(kind: type) -> bool:
    """`issubclass`, which asks Python's abstract base classes each time."""
    return issubclass(kind, cst.CSTNode)


@lru_cache(maxsize=32768)
def mentions(node: cst.CSTNode) -> Counter[str]:
    """How often a piece of code mentions each name, without attributes and keywords."""
    if isinstance(node, cst.Name):
        return Counter([node.value])
    if isinstance(node, (cst.Attribute, cst.Arg)):
        return mentions(node.value)
    found: Counter[str] = Counter()
    for name in _fields(type(node)):
        value = getattr(node, name)
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if _is_node(item.__class__):
                found.update(mentions(item))
    return found


def names_in(node: cst.CSTNode) -> Set[str]:
    """Names that a piece of code mentions, without attributes and keywords."""
    return mentions(node).keys()


def _lower(nodes: Sequence[SourceNode]) -> list[cst.BaseStatement]:
    lowered: list[cst.BaseStatement] = []
    for node in nodes:
        if isinstance(node, SourceStatement):
            lowered.append(node.node)
            continue
        body = _lower(node.body) or [cst.SimpleStatementLine([cst.Pass()])]
        block = node.node.body
        if not isinstance(block, cst.IndentedBlock):
            block = cst.IndentedBlock(body=[])
        lowered.append(node.node.with_changes(body=block.with_changes(body=body)))
    return lowered


def _replaced(
    nodes: tuple[SourceNode, ...], path: StatementPath, new: Sequence[SourceNode]
) -> tuple[SourceNode, ...]:
    position, rest = path[0], path[1:]
    if not rest:
        return (*nodes[:position], *new, *nodes[position + 1 :])
    inside = nodes[position]
    assert isinstance(inside, SourceLoop)
    changed = replace(inside, body=_replaced(inside.body, rest, new))
    return (*nodes[:position], changed, *nodes[position + 1 :])


def _walk(
    nodes: Sequence[SourceNode], prefix: StatementPath
) -> Iterator[tuple[StatementPath, SourceNode]]:
    for position, node in enumerate(nodes):
        path = (*prefix, position)
        yield path, node
        if isinstance(node, SourceLoop):
            yield from _walk(node.body, path)


def _function(module: cst.Module, path: tuple[str, ...]) -> cst.FunctionDef:
    """The function of this path of names; of several of one name the last, as Python has it."""
    found: cst.FunctionDef | None = None
    body: Sequence[cst.CSTNode] = module.body
    for name in path:
        found = None
        for node in _in_blocks(body):
            if isinstance(node, cst.FunctionDef) and node.name.value == name:
                found = node
        if found is None:
            raise KeyError(path)
        body = found.body.body
    assert found is not None
    return found


def _in_blocks(body: Sequence[cst.CSTNode]) -> Iterator[cst.CSTNode]:
    """The statements of a body, those of its blocks included."""
    for node in body:
        yield node
        if isinstance(node, (cst.If, cst.Else, cst.Try, cst.With, cst.ExceptHandler, cst.Finally)):
            inner = (child for child in node.children if isinstance(child, cst.BaseSuite))
            for suite in inner:
                yield from _in_blocks(suite.body)
            yield from _in_blocks([c for c in node.children if not isinstance(c, cst.BaseSuite)])


def _is_remark(part: cst.BaseSmallStatement) -> bool:
    """A bare string or `pass`: no effect."""
    if isinstance(part, cst.Expr):
        return isinstance(part.value, (cst.SimpleString, cst.ConcatenatedString))
    return isinstance(part, cst.Pass)


def _single(
    statement: cst.SimpleStatementLine, part: cst.BaseSmallStatement, *, first: bool
) -> cst.SimpleStatementLine:
    if len(statement.body) == 1:
        return statement
    part = part.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
    return statement.with_changes(
        body=[part], leading_lines=statement.leading_lines if first else ()
    )


def _is_counted(statement: cst.For, aliases: Mapping[str, str]) -> bool:
    if statement.orelse is not None or not isinstance(statement.target, cst.Name):
        return False
    if not isinstance(statement.iter, cst.Call):
        return False
    kernel = ParsedKernel(cst.Module([]), (), (), aliases)
    return kernel.canonical(statement.iter.func) in LOOPS


def _aliases(module: cst.Module) -> dict[str, str]:
    """Imported names of the whole text and what they mean canonically."""
    aliases: dict[str, str] = {}

    class Imports(cst.CSTVisitor):
        def visit_Import(self, node: cst.Import) -> None:
            for item in node.names:
                full = code_of(item.name)
                name = item.asname.name if item.asname else item.name
                if isinstance(name, cst.Name) and full in MODULES:
                    aliases[name.value] = MODULES[full]

        def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
            if node.module is None or isinstance(node.names, cst.ImportStar):
                return
            base = code_of(node.module)
            for item in node.names:
                full = f"{base}.{item.name.value}"
                short = MODULES.get(full) or (
                    f"{MODULES[base]}.{item.name.value}" if base in MODULES else None
                )
                name = item.asname.name if item.asname else item.name
                if short and isinstance(name, cst.Name):
                    aliases[name.value] = short

    module.visit(Imports())
    return aliases
