"""Hints to the compiler that are sound for any CUDA kernel; what changes its work is a model's to write.

Legal for any source with a launch of its own: the hints say what that launch and the contract say (the
threads of a block, tensors that are apart), or leave the order of operations as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from accelopt.errors import ConfigError
from accelopt.kernels.cuda.launch_pragma import launch_of, signature_of
from accelopt.kernels.moves import METHODS
from accelopt.knob_space import Parameter
from accelopt.nodes import Action, Rewrite, made

FACTORS = (4, 8, 2)
MOST_LOOPS = 4
_NOT_CODE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:\\\n|[^\n])*',
    re.DOTALL | re.MULTILINE,
)
"""Comments, strings and lines of the preprocessor."""


def launch_bounds(source: str, name: str) -> Iterator[Action]:
    """Tell the compiler how many threads a block has, so that it may use the registers they leave.

    Before: `__global__ void f(...)`. After: `__global__ void __launch_bounds__(256) f(...)`.
    """
    threads = launch_of(source).threads
    head = _head(source, name)
    if "__launch_bounds__" not in head[0]:
        bounds = f"__launch_bounds__({threads}) "
        text = _inserted(source, [(head.start("name"), bounds)])
        yield _made("launch_bounds", f"Declare blocks of {threads} threads.", text, promise=0.02)


def read_only_pointers(source: str, name: str) -> Iterator[Action]:
    """Declare that pointers do not overlap, so that loads may be moved and go by the read-only path.

    Before: `const float* x`. After: `const float* __restrict__ x`. Legal because a contract's arguments
    are tensors of their own.
    """
    head = _head(source, name)
    places = [
        (head.start("parameters") + pointer.start(1), "__restrict__ ")
        for pointer in re.finditer(r"\*\s*(?:const\s+)?(\w+)\s*(?:,|$)", head["parameters"])
    ]
    if places:
        text = _inserted(source, places)
        sentence = "Declare that the pointers do not overlap."
        yield _made("read_only_pointers", sentence, text, promise=0.05)


def unrolled_loops(source: str, name: str) -> Iterator[Action]:
    """Unroll loops so that the loads of several steps are under way together.

    Before: `for (...)`. After: `#pragma unroll 4` above it. The first loops that begin a line are tried.
    """
    loops = list(re.finditer(r"^[ \t]*(?=for\s*\()", _code(source), re.MULTILINE))
    for number, loop in enumerate(loops[:MOST_LOOPS]):
        above = source[: loop.start()].rstrip().rpartition("\n")[2].strip()
        for factor in () if above.startswith("#pragma") else FACTORS:
            text = _inserted(source, [(loop.start(), f"{loop[0]}#pragma unroll {factor}\n")])
            sentence = f"Unroll loop {number + 1} {factor} times."
            yield _made("unroll_loops", sentence, text, promise=0.04, loop=number, factor=factor)


RULES: tuple[Callable[[str, str], Iterator[Action]], ...] = (
    read_only_pointers,
    unrolled_loops,
    launch_bounds,
)


def proposals(source: str, name: str, most: int) -> list[Action]:
    """The hints that the kernel `name`, or the only one, does not have, the most promising first; none
    of a source without a kernel or a launch."""
    found: list[Action] = []
    try:
        for rule in RULES:
            found += rule(source, name)
    except ConfigError:
        return []
    return sorted(found, key=lambda action: -action.promise)[:most]


def _made(
    method: str, sentence: str, text: str, *, promise: float, **parameters: Parameter
) -> Action:
    change = Rewrite(move=method, parameters=parameters, sentence=sentence)
    return made(change, text, promise=promise, touches=METHODS[method].touches)


def _code(source: str) -> str:
    """The text with blanks in the place of what is no code, of the same length."""
    return _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


def _head(source: str, name: str) -> re.Match[str]:
    """From `__global__` to the parameters. Raises ConfigError where there is no such kernel."""
    called = signature_of(source, name).name
    found = re.search(
        rf"\b__global__\b[^;{{}}]*?\b(?P<name>{called})\s*\((?P<parameters>[^)]*)\)", _code(source)
    )
    if found is None:
        raise ConfigError(f"the source has no plain head of a kernel {called}")
    return found


def _inserted(source: str, insertions: list[tuple[int, str]]) -> str:
    for place, text in sorted(insertions, reverse=True):
        source = source[:place] + text + source[place:]
    return source
