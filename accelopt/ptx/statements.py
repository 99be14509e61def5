"""PTX text as typed statements. No statement is lost, wherever comments and line breaks stand.

The grammar is that of "PTX ISA" (NVIDIA), chapters 4 and 5: white space and comments mean nothing, a
statement ends at `;`; labels, `.loc`, `.file`, `.section` and braces have none.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from accelopt.ptx.module import Declaration, Function, Label, Module, NotPtx, SourcePlace, Statement

_TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"|[\w.$%]+(?:::[\w.$%]+)*|\S', re.DOTALL)
_DOTTED = re.compile(r"\.[^.]+")
_WORD = re.compile(r"[\w$%]")
_INLINE = re.compile(r"//\s*(begin|end) inline asm\s*$")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def read(text: str) -> Module:
    """All statements of a PTX text. Raises NotPtx, in one sentence."""
    if "\0" in text:
        raise NotPtx("this is a binary file, not PTX text; cuobjdump -ptx extracts the text")
    module = _Reader(text.removeprefix("\ufeff")).module()
    if not module.functions:
        raise NotPtx(
            "this is not PTX: there is no .entry and no .func with a body"
            if not module.version
            else "this PTX has no kernel: no .entry and no .func has a body"
        )
    return module


@dataclass
class _Body:
    """A function while it is read."""

    statements: list[Statement] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    declarations: list[Declaration] = field(default_factory=list)
    scopes: list[int] = field(default_factory=list)


class _Reader:
    """Tokens from left to right; nothing is read twice."""

    def __init__(self, text: str) -> None:
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.tokens: list[str] = []
        self.offsets: list[int] = []
        self.inline: list[int] = []  # offsets where inline assembly begins and ends, in turn
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token.startswith(("//", "/*")):
                marker = _INLINE.match(token)
                if marker and (marker[1] == "begin") == (len(self.inline) % 2 == 0):
                    self.inline.append(match.start())
                continue
            parts = _DOTTED.findall(token) if token[0] == "." else [token]  # `.reg.b32` is two
            self.tokens += parts or [token]
            self.offsets += [match.start()] * max(1, len(parts))
        self.at = 0
        self.end = len(self.tokens)
        self.files: dict[int, str] = {}
        self.source: tuple[tuple[int, int], ...] = ()  # file and line, the innermost first
        self.places: dict[tuple[int, int, int], tuple[tuple[int, int], ...]] = {}
        self.asm_seen = -1  # the piece of inline assembly whose own `.loc` was read

    def line(self, at: int) -> int:
        """The line of a token."""
        offset = self.offsets[min(at, self.end - 1)]
        return bisect.bisect_left(self.breaks, offset) + 1

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < self.end else ""

    def take(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def module(self) -> Module:
        functions: list[Function] = []
        declarations: list[Declaration] = []
        version = target = ""
        while self.at < self.end:
            token = self.peek()
            if token in ("#", "@"):  # preprocessor lines, and debug information of old compilers
                self.skip_line()
            elif token == ".version":
                self.at += 1
                version = self.take()
            elif token == ".target":
                self.at += 1
                target = self.take()
                while self.peek() == ",":
                    self.at += 2
            elif token == ".address_size":
                self.at += 2
            elif self.unended():
                continue
            elif token.startswith(".") or token == ";":
                found = self.top(declarations)
                if found is not None:
                    functions.append(found)
            else:
                raise NotPtx(f"this is not PTX: line {self.line(self.at)} has {token[:40]!r}")
        functions = [_named(one, self.files) for one in functions]
        return Module(tuple(functions), tuple(declarations), version, target, self.files)

    def skip_line(self) -> None:
        line = self.line(self.at)
        while self.at < self.end and self.line(self.at) == line:
            self.at += 1

    def unended(self) -> bool:
        """Read a directive that has no `;`, if one stands here."""
        token = self.peek()
        if token == ".loc":
            self.location()
        elif token == ".file":
            number, path = self.after(2)
            self.files[_integer(number)] = path.strip('"')
            self.at += 3
            while self.peek() == ",":
                self.at += 2
        elif token == ".section":
            while self.peek() not in ("{", ""):
                self.at += 1
            self.braces()
        else:
            return False
        return True

    def location(self) -> None:
        """`.loc file line column[, function_name label[+offset], inlined_at file line column]`."""
        start = self.offsets[self.at]
        place = self.three(1)
        self.at += 4
        around: tuple[tuple[int, int], ...] = ()
        while self.peek() == ",":
            if self.tokens[self.at + 1 : self.at + 2] == ["inlined_at"]:
                where = self.three(2)
                around = self.places.get(where, (where[:2],))
                self.at += 5
            else:
                self.at += 3
                while self.peek() in ("+", "-"):
                    self.at += 2
        found = (place[:2], *around)
        # LLVM counts the lines of a piece of inline assembly as lines of the source: after the first
        # `.loc` of the piece, the others lead elsewhere.
        piece = bisect.bisect_right(self.inline, start)
        if piece % 2 == 1:
            if self.asm_seen == piece:
                return
            self.asm_seen = piece
        self.places[place] = found
        self.source = found

    def three(self, after: int) -> tuple[int, int, int]:
        file, line, column = self.after(after + 2)[after - 1 :]
        return (_integer(file), _integer(line), _integer(column))

    def after(self, count: int) -> list[str]:
        """The `count` tokens after the next one."""
        found = self.tokens[self.at + 1 : self.at + 1 + count]
        if len(found) < count:
            raise self.cut()
        return found

    def braces(self) -> None:
        """Skip from `{` to the `}` that closes it."""
        depth = 0
        while self.at < self.end:
            token = self.take()
            depth += (token == "{") - (token == "}")
            if depth == 0:
                return
        raise self.cut()

    def cut(self) -> NotPtx:
        return NotPtx(
            f"this PTX is cut off: it ends in line {len(self.breaks) + 1} inside a statement"
        )

    def until_end(self) -> list[str]:
        """The tokens up to the next `;` outside brackets, which is taken too."""
        start, depth = self.at, 0
        while self.at < self.end:
            token = self.take()
            if token in _CLOSING:
                depth += 1
            elif token in ")]}":
                depth -= 1
                if depth < 0:
                    line = self.line(start)
                    raise NotPtx(f"the statement of line {line} has no `;` before {token!r}")
            elif token == ";" and depth == 0:
                return self.tokens[start : self.at - 1]
        raise self.cut()

    def top(self, declarations: list[Declaration]) -> Function | None:
        """A function with a body, or a declaration between functions."""
        start = self.at
        self.source = ()
        entry = None
        while self.at < self.end:
            token = self.tokens[self.at]
            if token in (".entry", ".func"):
                entry = token == ".entry"
            elif token == "{" and entry is not None:
                return self.function(start, entry)
            elif token == ".pragma" and entry is not None:
                line = self.line(self.at)
                declarations.append(Declaration(tuple(self.until_end()), line))
                continue
            elif token == ";" or (token == "{" and entry is None):
                self.at = start
                words = tuple(self.until_end())
                declarations.append(Declaration(words, self.line(start)))
                return None
            self.at += 1
        if entry is None and start == 0:
            raise NotPtx(f"this is not PTX: line {self.line(start)} has {self.tokens[0][:40]!r}")
        raise self.cut()

    def function(self, start: int, entry: bool) -> Function:
        """The function whose header began at token `start`; the next token opens its body."""
        name, parameters, numbers = _header(self.tokens[start : self.at])
        body = _Body()
        stack: list[int] = []
        label = ""
        while True:
            if self.at >= self.end:
                raise NotPtx(f"this PTX is cut off: it ends inside {name}")
            token, here = self.peek(), self.at
            if token == "{":
                self.at += 1
                body.scopes.append(stack[-1] if stack else 0)
                stack.append(len(body.scopes) - 1)
            elif token == "}":
                self.at += 1
                stack.pop()
                if not stack:
                    break
            elif token == "#":
                self.skip_line()
            elif self.unended():
                continue
            elif self.tokens[here + 1 : here + 2] == [":"] and token != "@":
                self.at += 2
                body.labels.append(Label(token, len(body.statements), self.line(here), stack[-1]))
                label = token
                continue
            elif token.startswith(".") or token == ";":
                words = tuple(self.until_end())
                body.declarations.append(Declaration(words, self.line(here), label, stack[-1]))
            else:
                body.statements.append(self.instruction(stack[-1]))
            label = ""
        return Function(
            name, entry, tuple(body.statements), tuple(body.labels), tuple(body.declarations),
            tuple(body.scopes), numbers, parameters, self.line(start), self.line(self.at - 1),
        )  # fmt: skip

    def instruction(self, scope: int) -> Statement:
        start = self.at
        words = self.until_end()
        guard = ""
        if words and words[0] == "@":
            size = 3 if words[1:2] == ["!"] else 2
            guard, words = "".join(words[1:size]), words[size:]
        if not words or not (words[0][0].isalpha() or words[0][0] == "_"):
            raise NotPtx(f"line {self.line(start)} has no instruction that PTX could mean")
        size = 1
        while size < len(words) and words[size].startswith("."):
            size += 1
        opcode, *modifiers = "".join(words[:size]).split(".")
        return Statement(
            opcode, tuple(modifiers), tuple(operands(words[size:])), guard,
            self.line(start), self.line(self.at - 1), _pending(self.source), scope,
        )  # fmt: skip


def operands(words: list[str]) -> Iterator[str]:
    """Operands without white space: what commas outside brackets separate."""
    depth, part = 0, ""
    for word in words:
        depth += (word in _CLOSING) - (word in ")]}")
        if word == "," and depth == 0:
            yield part
            part = ""
        else:
            part += (" " if part and _WORD.match(part[-1]) and _WORD.match(word) else "") + word
    if part:
        yield part


def _integer(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise NotPtx(f"this is not PTX: {text[:40]!r} stands where a number must be") from None


def _pending(source: tuple[tuple[int, int], ...]) -> tuple[SourcePlace, ...]:
    """Places whose files are named at the end of the text: the number stands in for the name."""
    return tuple(SourcePlace(str(file), line) for file, line in source)


def _named(function: Function, files: Mapping[int, str]) -> Function:
    """`function` with the names of files in its places."""
    names = {str(number): name for number, name in files.items()}
    known: dict[tuple[SourcePlace, ...], tuple[SourcePlace, ...]] = {}
    statements = []
    for one in function.statements:
        if one.source not in known:
            known[one.source] = tuple(
                SourcePlace(names.get(at.file, at.file), at.line) for at in one.source
            )
        statements.append(one._replace(source=known[one.source]))
    return replace(function, statements=tuple(statements))


def _header(
    words: list[str],
) -> tuple[str, tuple[str, ...], dict[str, tuple[int, ...]]]:
    """Name, parameters, and numbers of the directives of a function's header."""
    at = next(place for place, word in enumerate(words) if word in (".entry", ".func")) + 1
    groups: list[list[str]] = []
    name = ""
    numbers: dict[str, tuple[int, ...]] = {}
    while at < len(words):
        word = words[at]
        if word == "(":
            if ")" not in words[at:]:
                raise NotPtx(f"the header of {name or 'a function'} has no `)`")
            close = words.index(")", at)
            if name:
                groups.append(words[at + 1 : close])
            at = close
        elif word.startswith("."):
            values = []
            while at + 1 < len(words) and (words[at + 1] == "," or words[at + 1].isdigit()):
                at += 1
                if words[at] != ",":
                    values.append(int(words[at]))
            numbers[word] = tuple(values)
        elif not name:
            name = word
        at += 1
    given = operands(groups[0]) if groups else iter(())
    return name, tuple(re.split(r"[ .]", one.split("[")[0])[-1] for one in given), numbers


def by_source(module: Module) -> Mapping[SourcePlace, tuple[Statement, ...]]:
    """The statements of each line of the source, in the order of the text. What was inlined stands
    under its own line and under the lines that called it; empty when the text has no `.loc`."""
    found: dict[SourcePlace, list[Statement]] = {}
    for function in module.functions:
        for one in function.statements:
            for place in dict.fromkeys(one.source):
                found.setdefault(place, []).append(one)
    return {place: tuple(statements) for place, statements in sorted(found.items())}
