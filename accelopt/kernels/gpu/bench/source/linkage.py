"""What C++ and CUDA sources say to the preprocessor and the linker: an allow-list of each.

A name that is declared and defined nowhere in the solution is the host's; one that bears the runtime's
name is taken from it; sections and attributes place code where nobody calls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HOST = "reaches the host system"
HIDDEN = "puts names together that cannot be read"
UNASKED = "is called when nobody sees it"

_DIRECTIVES = frozenset(
    "include define undef if ifdef ifndef elif elifdef elifndef else endif pragma error warning".split()
)
_PRAGMAS = frozenset(
    "once unroll nounroll no_unroll launch nv_diag_suppress nv_diag_default nv_diagnostic "
    "nv_diag_warning nv_exec_check_disable hd_warning_disable diag_suppress diag_default message omp "
    "warning region endregion".split()
)
_ATTRIBUTES = frozenset(
    "align aligned alignas always_inline assume cold const constant deprecated device fallthrough "
    "flatten forceinline format global gnu gnu_inline host hot inline launch_bounds likely malloc "
    "managed maybe_unused may_alias no_unique_address nodiscard noinline noreturn nothrow nv_pure nvcc "
    "packed pure returns_nonnull shared unlikely unused visibility warn_unused_result clang".split()
)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(.*)$", re.M)
_ATTRIBUTE = re.compile(
    r"__attribute(?:__)?\s*\(\((.*?)\)\)|\[\[([^\[\]]*)\]\]|__declspec\s*\((.*?)\)", re.S
)
_PRAGMA = re.compile(r'_Pragma\s*\(\s*(?:u8|[uUL])?"((?:\\.|[^"\\])*)')
_EXTERN = re.compile(r'\bextern\b\s*(?:"[^"]*"\s*(\{)?)?')
_NAMED = re.compile(r"([A-Za-z_]\w*)\s*(?=[(\[;=,{]|$)")
_DEVICE = frozenset({"__shared__", "__device__", "__global__", "__constant__"})
_RUNTIMES = re.compile(r"cu(da)?[A-Z]\w*|__cuda\w*|TVMFFI\w*")


def linkage_faults(text: str, sources: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Place, text and reason of every fault in `text`; `sources` are all texts of the solution. All without
    comments, with what is in strings left out but for attributes' and linkage's own."""
    for match in _DIRECTIVE.finditer(text):
        if match[1] not in _DIRECTIVES:
            yield match.start(), f"#{match[1]}", HIDDEN
        elif match[1] == "pragma" and not _is_plain_pragma(match[2]):
            yield match.start(), match.group().strip()[:60], HIDDEN
    for match in _PRAGMA.finditer(text):
        if not _is_plain_pragma(match[1]):
            yield match.start(), match.group()[:60], HIDDEN
    for match in _ATTRIBUTE.finditer(text):
        for word in _attributes("".join(part or "" for part in match.groups())):
            if word not in _ATTRIBUTES:
                yield match.start(), word, UNASKED
    code = _DIRECTIVE.sub(lambda found: " " * len(found.group()), text)
    for match in _EXTERN.finditer(code):
        for declared in _declarations(code, match):
            name = _declared_name(declared)
            if _RUNTIMES.fullmatch(name) or not (_is_made(declared) or defines(sources, name)):
                yield match.start(), f"extern ... {name}", HOST


def _is_plain_pragma(said: str) -> bool:
    words = re.findall(r"\w+", said)
    if words[:2] in (
        ["GCC", "diagnostic"],
        ["clang", "diagnostic"],
        ["GCC", "unroll"],
        ["GCC", "ivdep"],
    ):
        return True
    return bool(words) and words[0] in _PRAGMAS


def _attributes(inside: str) -> Iterator[str]:
    """The names of attributes, without what they are given."""
    flat = re.sub(r'"[^"]*"', "", inside)
    while (shorter := re.sub(r"\([^()]*\)", "", flat)) != flat:
        flat = shorter
    for word in re.findall(
        r"[A-Za-z_]\w*", re.sub(r"\b(?:using\s+)?\w+\s*:(?!:)|\w+\s*::", "", flat)
    ):
        yield word.strip("_")


def _declarations(text: str, match: re.Match[str]) -> Iterator[str]:
    """What an `extern` declares: up to `;` or with its `{`; all of a block's."""
    at = match.end()
    if match[1] is None:
        yield _one(text, at)[0]
        return
    while at < len(text) and not re.match(r"\s*\}", text[at:]):
        declared, at = _one(text, at)
        yield declared


def _one(text: str, at: int) -> tuple[str, int]:
    """One declaration, and where the next begins: behind its `;` or its body."""
    start, depth = at, 0
    while at < len(text):
        depth += (text[at] in "([") - (text[at] in ")]")
        if depth == 0 and text[at] in ";{":
            break
        at += 1
    end, braces = at, 0
    while at < len(text):
        braces += (text[at] == "{") - (text[at] == "}")
        at += 1
        if braces == 0:
            break
    return text[start : end + 1], at


def _declared_name(declared: str) -> str:
    plain = re.sub(
        r"<[^<>]*>|__launch_bounds__\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)", " ", declared
    )
    named = _NAMED.search(plain)
    return named[1] if named else ""


def _is_made(declared: str) -> bool:
    """Whether it stands for something here or on the device: a body, a template's instance, a type; or for
    nothing."""
    words = re.findall(r"\w+", declared)
    if not words or words[0] in (
        "template",
        "typedef",
        "using",
        "struct",
        "enum",
        "class",
        "static_assert",
    ):
        return True
    return declared.endswith("{") or not _DEVICE.isdisjoint(words)


def defines(sources: Sequence[str], name: str) -> bool:
    """Whether some text of a solution defines a name: a function, a variable."""
    made = re.compile(
        rf"\b{re.escape(name)}\s*(?:\([^;{{}}]*\)[\w\s]*\{{|(?:\[[^\]]*\]\s*)*(?:=|\{{))"
        rf"|^(?![^\n;]*\bextern\b)[\w\s*&:<>,]*\b{re.escape(name)}\s*(?:\[[^\]]*\]\s*)*;", re.M
    )  # fmt: skip
    return any(made.search(source) for source in sources)
