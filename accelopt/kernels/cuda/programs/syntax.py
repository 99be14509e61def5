"""One CUDA kernel as a tree, by tree-sitter's grammar of CUDA C++.

Comments are blanked and the kernel's macros put in their places before anything is read, so that a
rule sees what the compiler sees; what stands around the kernel stays as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from accelopt.kernels.cuda.launching import (
    ExecutionConfiguration,
    Parameter,
    launch_of,
    signature_of,
)

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MACRO = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^)]*\))?[ \t]+(\S.*?)[ \t]*$", re.MULTILINE
)
_CONSTANT = re.compile(
    r"^[ \t]*(?:(?:static|inline|__device__|__constant__)\s+)*(?:constexpr|const)\s+(?:static\s+)?"
    r"(?:unsigned|int|unsigned int|size_t)\s+(\w+)\s*=\s*(\w+)\s*;", re.MULTILINE
)  # fmt: skip
_MOST_MACROS = 400  # uses of macros in one kernel
SIZES: Mapping[str, int] = {
    "char": 1, "signed char": 1, "unsigned char": 1, "int8_t": 1, "uint8_t": 1, "bool": 1,
    "short": 2, "unsigned short": 2, "int16_t": 2, "uint16_t": 2,
    "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2,
    "int": 4, "unsigned": 4, "unsigned int": 4, "int32_t": 4, "uint32_t": 4, "float": 4,
    "half2": 4, "__half2": 4, "__nv_bfloat162": 4,
    "long long": 8, "unsigned long long": 8, "long": 8, "unsigned long": 8, "size_t": 8,
    "int64_t": 8, "uint64_t": 8, "double": 8, "float2": 8, "int2": 8,
}  # fmt: skip
"""Bytes of an element, by the C name of its type."""
WHOLE = frozenset(
    "int unsigned long size_t int32_t uint32_t int64_t uint64_t auto".split()
) | {"unsigned int", "long long", "unsigned long", "unsigned long long"}  # fmt: skip
"""Types of whole numbers that do not wrap around in an index."""
SHORT_FLOATS: Mapping[str, str] = {
    "half": "half", "__half": "half", "__nv_bfloat16": "bfloat16", "nv_bfloat16": "bfloat16"
}  # fmt: skip
"""Formats by the C names of their types."""
AS_FLOAT = r"(?:(?:__half2float|__bfloat162float|float|static_cast<float>)\({0}\)|\(float\){0})"
"""How C says, without spaces, that a value is made a float: a pattern, with a place for that of the value."""


class Unread(Exception):
    """A kernel is not of the kind that a rule reads."""


class Kernel(NamedTuple):
    """A kernel's function, and the text before and behind its body."""

    name: str
    launch: ExecutionConfiguration
    parameters: Mapping[str, Parameter]
    before: str
    body: Node
    behind: str

    def with_body(self, lines: Iterable[str]) -> str:
        """The source with these lines as the kernel's body."""
        inside = "\n".join(f"  {line}" if line.strip() else "" for line in lines)
        return f"{self.before}{{\n{inside}\n}}{self.behind}"

    def size(self, pointer: str) -> int:
        """Bytes of one element behind a parameter. Raises Unread where nobody knows."""
        if self.parameters[pointer].type not in SIZES:
            raise Unread(f"nobody knows the size of {self.parameters[pointer].type}")
        return SIZES[self.parameters[pointer].type]


def read(source: str, name: str = "") -> Kernel:
    """The kernel `name`, or the only one. Raises Unread where the text cannot be read, ConfigError
    where it has no such kernel or no launch."""
    launch, signature = launch_of(source), signature_of(source, name)
    names = [parameter.name for parameter in signature.parameters]
    if len(set(names)) != len(names) or not all(map(str.isidentifier, names)):
        raise Unread("parameters without names")
    bare = uncommented(source)
    head = re.search(rf"\b__global__\b[^;{{]*\b{signature.name}\s*\([^)]*\)\s*\{{", bare)
    if head is None or re.search(r"\btemplate\s*<[^;{]*$", bare[: head.start()]):
        raise Unread("no plain definition of a kernel")
    opening = head.end() - 1
    closing = closing_of(bare, opening)
    if "#if" in bare[opening:closing].replace(" ", ""):
        raise Unread("a body that depends on the preprocessor")
    body = body_of(expanded(bare[opening:closing], bare[: head.start()], names))
    return Kernel(
        signature.name,
        launch,
        {parameter.name: parameter for parameter in signature.parameters},
        source[:opening],
        body,
        source[closing:],
    )


def body_of(text: str) -> Node:
    """The tree of a body with its braces. Raises Unread where it is none."""
    function = next(iter(parsed(f"void body() {text}").children), None)
    body = None if function is None else function.child_by_field_name("body")
    if body is None or body.has_error:
        raise Unread("a body that is no plain CUDA C++")
    return body


def parsed(text: str) -> Node:
    """The tree of a text."""
    return _parser().parse(text.encode()).root_node


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_cuda.language()))


def uncommented(source: str) -> str:
    """A text with spaces in the place of its comments."""
    return _COMMENTS.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), source)


def closing_of(text: str, opening: int) -> int:
    """The place behind the brace that closes the one at `opening`. Raises Unread where there is none."""
    depth = 0
    for place in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    raise Unread("a brace that is not closed")


def _macros(text: str) -> dict[str, tuple[tuple[str, ...] | None, str]]:
    """Parameters (None where it takes none) and text of each macro."""
    return {
        name: (
            tuple(one.strip() for one in parameters[1:-1].split(",")) if parameters else None,
            value,
        )
        for name, parameters, value in _MACRO.findall(text)
    }


def _constants(text: str, hidden: Sequence[str]) -> dict[str, tuple[None, str]]:
    """Whole numbers that stand before a kernel, outside of all braces."""
    return {
        found[1]: (None, found[2])
        for found in _CONSTANT.finditer(text)
        if found[1] not in hidden
        and text.count("{", 0, found.start()) == text.count("}", 0, found.start())
    }


def expanded(text: str, before: str, hidden: Sequence[str] = ()) -> str:
    """A text with the macros and the constants that stand before it in their places, but for names that
    are `hidden`; `before` has no comments."""
    return _expanded(text, _macros(before) | _constants(before, hidden))


def _expanded(text: str, macros: Mapping[str, tuple[tuple[str, ...] | None, str]]) -> str:
    """The text with macros replaced by what they stand for."""
    for _ in range(_MOST_MACROS):
        found = next((m for m in re.finditer(r"\b[A-Za-z_]\w*\b", text) if m[0] in macros), None)
        if found is None:
            return text
        parameters, value = macros[found[0]]
        end = found.end()
        if value.endswith("\\") or "#" in value:
            raise Unread("a macro that is more than a line of words")
        if parameters is not None:
            given, end = _arguments(text, end)
            if len(given) != len(parameters):
                raise Unread("a macro with other arguments than it takes")
            by_name = dict(zip(parameters, given, strict=True))
            value = re.sub(r"\b\w+\b", lambda word: by_name.get(word[0], word[0]), value)  # noqa: B023
        text = text[: found.start()] + value + text[end:]
    raise Unread("macros without an end")


def _arguments(text: str, place: int) -> tuple[list[str], int]:
    """What stands between the parentheses at `place`, by commas, and the place behind them."""
    opening = re.compile(r"\s*\(").match(text, place)
    if opening is None:
        raise Unread("a macro without its arguments")
    depth, begin, found = 1, opening.end(), []
    for at in range(opening.end(), len(text)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[at], 0)
        if depth == 0 or (depth == 1 and text[at] == ","):
            found.append(text[begin:at].strip())
            begin = at + 1
        if depth == 0:
            return found, at + 1
    raise Unread("a macro without its end")


def said(node: Node | None) -> str:
    """The text of a node; nothing of none."""
    return "" if node is None or node.text is None else node.text.decode()


def tight(node: Node | None) -> str:
    """The text without spaces where they say nothing."""
    words = re.sub(r"\s+", " ", said(node))
    return re.sub(r"(?<=\W) | (?=\W)", "", words)


def field(node: Node | None, name: str) -> Node:
    """A child by its field. Raises Unread where there is none."""
    found = None if node is None else node.child_by_field_name(name)
    if found is None:
        raise Unread(f"no {name}")
    return found


def walk(node: Node) -> Iterator[Node]:
    """A node and everything inside, in order."""
    yield node
    for child in node.children:
        yield from walk(child)


def statements(node: Node | None) -> list[Node]:
    """Those of a block in order, or the one statement that stands in its place; no pragmas."""
    if node is None:
        return []
    if node.type != "compound_statement":
        return [node]
    return [one for one in node.named_children if one.type != "preproc_call"]


def bare(node: Node | None) -> Node | None:
    """What stands in parentheses and condition clauses, or in a block of one statement."""
    while node is not None:
        if node.type in ("parenthesized_expression", "condition_clause"):
            node = node.child_by_field_name("value") or next(iter(node.named_children), None)
        elif node.type == "compound_statement" and len(statements(node)) == 1:
            (node,) = statements(node)
        elif node.type == "expression_statement" and node.named_children:
            node = node.named_children[0]
        else:
            return node
    return None


def replaced(node: Node, change: Callable[[Node], str | None]) -> str:
    """The text of a node, with every node for which `change` has a text in its place; outermost first."""
    new = change(node)
    if new is not None:
        return new
    if not node.children:
        return said(node)
    text, place = [], node.start_byte
    whole = said(node).encode()
    for child in node.children:
        text.append(whole[place - node.start_byte : child.start_byte - node.start_byte].decode())
        text.append(replaced(child, change))
        place = child.end_byte
    text.append(whole[place - node.start_byte :].decode())
    return "".join(text)


def names(node: Node) -> frozenset[str]:
    """Every name that stands in a node, `threadIdx.x` and the like as one."""
    found: set[str] = set()
    inside = [node]
    while inside:
        one = inside.pop()
        if one.type == "field_expression" and said(one.children[0]) in BUILT_IN:
            found.add(tight(one))
        elif one.type in ("identifier", "type_identifier"):
            found.add(said(one))
        else:
            inside += one.children
    return frozenset(found)


BUILT_IN = ("threadIdx", "blockIdx", "blockDim", "gridDim")


def assigned(node: Node) -> frozenset[str]:
    """Names of variables that a node gives other values, or whose address it takes."""
    found = set()
    for one in walk(node):
        target = None
        if one.type == "assignment_expression":
            target = bare(one.child_by_field_name("left"))
        elif one.type == "update_expression" or (
            one.type == "pointer_expression" and one.children[0].type == "&"
        ):
            target = bare(one.child_by_field_name("argument"))
        if target is not None and target.type in ("identifier", "field_expression"):
            found.add(said(target).partition(".")[0])
    return frozenset(found)


class Declared(NamedTuple):
    """A variable as it is declared: its type with `*` for a pointer, its qualifiers, the sizes of an
    array, and its first value."""

    name: str
    type: str
    pointer: bool
    shared: bool
    lengths: tuple[Node | None, ...]
    value: Node | None


def declared(statement: Node) -> list[Declared]:
    """The variables of a declaration. Raises Unread for what is more than plain."""
    kind = said(field(statement, "type"))
    words = {
        said(one) for one in statement.children if one.type.endswith(("qualifier", "specifier"))
    }
    if "static" in words or "volatile" in words:
        raise Unread("a variable that is static or volatile")
    found = []
    for child in statement.children_by_field_name("declarator"):
        value = None
        if child.type == "init_declarator":
            child, value = field(child, "declarator"), field(child, "value")
        pointer, lengths = False, []
        while child.type in ("pointer_declarator", "array_declarator"):
            pointer = pointer or child.type == "pointer_declarator"
            if child.type == "array_declarator":
                lengths.append(child.child_by_field_name("size"))
            child = field(child, "declarator")
        if child.type != "identifier":
            raise Unread(f"a declaration of {child.type}")
        found.append(
            Declared(
                said(child), kind, pointer, "__shared__" in words, tuple(reversed(lengths)), value
            )
        )
    return found


def joined(condition: Node | None, sign: str) -> list[Node]:
    """The parts of a condition between the signs."""
    if condition is None:
        raise Unread("no condition")
    if condition.type == "binary_expression" and field(condition, "operator").type == sign:
        sides = field(condition, "left"), field(condition, "right")
        return [part for side in sides for part in joined(bare(side), sign)]
    return [condition]
