"""A kernel's file in the newest `nki`, with what proves it: both are traced, and their Programs
executed on the same arrays and compared.

`rewritten` runs the file's Python, so only a process that holds nothing worth having should call it;
`translate_job` is that process's work, `translate_file` asks for it.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import libcst as cst
import numpy as np

from accelopt.errors import ConfigError, InternalError, internal_fault, quoted
from accelopt.kernels.nki.arguments import argument_of
from accelopt.kernels.nki.devices.absent_modules import AbsentImporter
from accelopt.kernels.nki.devices.kernel_file import KernelCall, call_of
from accelopt.kernels.nki.devices.kernel_folder import importer_of, kernel_folder
from accelopt.kernels.nki.devices.protocol import KernelFailure
from accelopt.kernels.nki.devices.tracing import (
    abstract,
    arguments_of_json,
    arguments_to_json,
    read_message,
)
from accelopt.kernels.nki.kernel_function import NoKernel, chosen, kernel_entry
from accelopt.kernels.nki.nests.wrapping import wrapped
from accelopt.kernels.nki.translation.facts import learn
from accelopt.kernels.nki.translation.imports import with_imports
from accelopt.kernels.nki.translation.indices import RAISES, Untranslated
from accelopt.kernels.nki.translation.launches import in_loops
from accelopt.kernels.nki.translation.names import ModuleNames
from accelopt.kernels.nki.translation.to_newest import has_device_loops, to_newest
from accelopt.kernels.nki.translation.to_nki import to_nki
from accelopt.sandbox import Limits, Policy, run
from accelopt.sim import compute, rules, serial
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS, dialect_of, trace_kernel
from accelopt.sim.dialects.nki.versions import NEWEST
from accelopt.sim.errors import KernelError
from accelopt.sim.kernel_loading import load, specs_of
from accelopt.sim.program import Buffer, Loop, Program, ProgramNode, Tensor

_files = itertools.count()
MOST_TEXTS = 16
"""That one translation loads: the kernel's, that without what it does not use, and the translation."""
TOLERANCE = 1e-5
"""Of the largest number of a result: both dialects compute the same, in another order at most."""
JOB = "accelopt.kernels.nki.translation.translate:translate_job"
MEMORY_BYTES = 6 << 30
RESULT_BYTES = 512 << 20


class Proof(NamedTuple):
    """How original and translation compare: the largest difference of their results relative to the
    largest number, and how often an opcode is executed, where that differs."""

    difference: float
    before: Mapping[str, int]
    after: Mapping[str, int]

    @property
    def equal_results(self) -> bool:
        """True when the results agree to rounding."""
        return self.difference <= TOLERANCE

    @property
    def equal_programs(self) -> bool:
        """True when both Programs execute the same instructions."""
        return self.before == self.after


class Rewriting(NamedTuple):
    """The text in the newest `nki`, what could not be translated by line, the Programs of both, or
    why the translation leaves none."""

    source: str
    problems: tuple[tuple[int, str], ...]
    program: Program
    twin: Program | None
    failure: str = ""


class Translation(NamedTuple):
    """The text in the newest `nki`; what could not be translated, by line; what was compared, or why
    there was nothing to compare."""

    source: str
    problems: tuple[tuple[int, str], ...]
    proof: Proof | None
    failure: str = ""

    @property
    def complete(self) -> bool:
        """True when everything that the arguments come to was translated and computes the same."""
        left = [said for _, said in self.problems if not said.endswith(RAISES)]
        return not left and self.proof is not None and self.proof.equal_results


def rewritten(source: str, specs: Sequence[Any]) -> Rewriting:
    """The kernel of `source` in the newest `nki`, learned by tracing it for arguments without data, on
    the generation of each dialect.

    Raises ConfigError where the file has no kernel or needs no translation, and KernelError where the
    kernel itself is refused.
    """
    file = f"<kernel {next(_files)}>"
    kernel = _kernel(source, file)
    own = dialect_of(kernel)
    newer = f"`accelopt check --nki {NEWEST}` says what of it NKI {NEWEST} refuses"
    already = ConfigError(f"the kernel is in the dialect nki already; {newer}")
    if own == "nki" and not has_device_loops(source):
        raise already
    call = call_of(kernel, specs)
    facts, program = learn(lambda: _traced(call, target=DEFAULT_TARGETS[own]), file)
    names = ModuleNames(cst.parse_module(source), own)
    rewrite = to_newest if own == "nki" else to_nki
    made, problems = rewrite(source, facts, names)
    if (needed := _without_unused(source, {line for line, _ in problems})) != source:
        return rewritten(needed, specs)
    if own == "nki" and made == source and not problems:
        raise already
    grid = getattr(call.kernel, "grid", ())
    if own == "neuronxcc" and (len(grid) > 1 or max(grid, default=1) > 2):
        launched = call.kernel.func
        try:
            made = in_loops(made, launched.__name__, len(grid), names)
        except Untranslated as problem:
            said = f"{problem} has no counterpart"
            problems.append((launched.__code__.co_firstlineno, said))
    if own != "nki":
        made = _without_left_over(with_imports(made, names), source)
    made = _laid_out(made, source)
    file = f"<kernel {next(_files)}>"
    try:
        twin_call = call_of(_kernel(made, file), specs)
        twin = _traced(twin_call, target=DEFAULT_TARGETS["nki"], version=NEWEST)
        rules.check(twin)
    except Exception as error:  # whatever the translated Python raises
        said = f"{type(error).__name__}: {error}".replace(file, "translation")
        return Rewriting(made, tuple(problems), program, None, said)
    return Rewriting(made, tuple(problems), program, twin)


def translate(source: str, arguments: Sequence[Any]) -> Translation:
    """A kernel that we vouch for, in the newest `nki`; `arguments` are arrays and plain values."""
    return _proven(rewritten(source, specs_of(arguments)), arguments)


def translate_file(kernel: Path, arguments: Sequence[Any], seconds: float) -> Translation:
    """The kernel of a file, whose Python runs in a confined child that sees no data. Raises
    ConfigError where there is nothing to translate, in one sentence."""
    try:
        given = arguments_to_json([argument_of(value) for value in arguments])
    except KernelFailure as failure:
        raise ConfigError(f"{kernel}: {failure.message}") from failure
    folder = kernel_folder(kernel).as_json()
    source = kernel.read_text(encoding="utf-8")
    payload = {"source": source, "folder": folder, "arguments": given}
    limits = Limits(seconds=seconds, memory_bytes=MEMORY_BYTES, result_bytes=RESULT_BYTES)
    outcome = run(JOB, payload, policy=Policy(), limits=limits)
    head, _, data = outcome.result.partition(b"\n")
    message = read_message(head)
    if message is None:
        raise ConfigError(
            f"{kernel}: its Python came to no end within {seconds:g} s, or ended the child"
        )
    if "error" in message:
        raise ConfigError(f"{kernel}: {message['error']}")
    size = int(str(message["size"]))
    try:
        program, rest = serial.loads(data[:size], str(kernel)), data[size:]
        twin = serial.loads(rest, "translation") if rest else None
    except serial.MalformedProgram as error:
        said = f"{kernel}: the kernel's process left a damaged program: {error}"
        raise ConfigError(said) from error
    problems = tuple((int(line), quoted(str(said))) for line, said in message["problems"])  # type: ignore[attr-defined]
    found = Rewriting(str(message["source"]), problems, program, twin, str(message["failure"]))
    return _proven(found, arguments)


def translate_job(payload: Mapping[str, Any], channel: BinaryIO) -> None:
    """In the child: the translation and the bytes of both Programs, or what is wrong."""
    sys.meta_path.insert(0, importer_of(payload["folder"]))
    sys.meta_path.append(AbsentImporter(frozenset(f"<kernel {n}>" for n in range(MOST_TEXTS))))
    try:
        found = rewritten(str(payload["source"]), abstract(arguments_of_json(payload["arguments"])))
        first = serial.dumps(found.program)
        second = b"" if found.twin is None else serial.dumps(found.twin)
    except InternalError as error:
        channel.write(json.dumps({"error": internal_fault(error)}).encode() + b"\n")
        return
    except (ConfigError, KernelError) as error:
        channel.write(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    except Exception as error:  # the file's own Python
        said = f"{type(error).__name__}: {error}"
        channel.write(json.dumps({"error": said}).encode() + b"\n")
        return
    message = {"source": found.source, "problems": found.problems, "failure": found.failure,
               "size": len(first)}  # fmt: skip
    channel.write(json.dumps(message).encode() + b"\n" + first + second)


def _proven(found: Rewriting, arguments: Sequence[Any]) -> Translation:
    if found.twin is None:
        return Translation(found.source, found.problems, None, found.failure)
    return Translation(
        found.source, found.problems, _compared(found.program, found.twin, arguments)
    )


def _kernel(source: str, file: str) -> Any:
    """The kernel of a text, loaded as that file. Raises ConfigError."""
    try:
        return chosen(vars(load(source, file)), source)
    except NoKernel as error:
        raise ConfigError(str(error)) from None


def _traced(call: KernelCall, **options: str) -> Program:
    return trace_kernel(call.kernel, call.arguments, call.keywords, **options)  # type: ignore[arg-type]


def _without_unused(source: str, lines: Container[int]) -> str:
    """The text without the functions that its kernel does not come to and that have such lines, which
    become empty ones."""
    tree, used = ast.parse(source), _reached(source)
    main = [n for n in tree.body if isinstance(n, ast.If) and "__name__" in _names(n.test)]
    gone = [node for name, node in _definitions(tree) if name not in used
            and isinstance(node, ast.FunctionDef)
            and any(n in lines for n in range(node.lineno, node.end_lineno + 1))]  # type: ignore[operator]  # fmt: skip
    gone += [node for node in main if _names(node) & {one.name for one in gone}]  # type: ignore[misc]
    return _without(source, gone)


def _without_left_over(made: str, source: str) -> str:
    """The translation without what only its original uses, and what asks the older compiler for addresses."""
    tree, used = ast.parse(made), _reached(made)
    left = _reached(source) - used
    return _without(made, [n for name, n in _definitions(tree) if name not in used and n in tree.body
                           and (name in left or "nki.compiler." in ast.unparse(n))])  # fmt: skip


def _without(text: str, gone: Sequence[ast.stmt]) -> str:
    texts = text.splitlines(keepends=True)
    for node in gone:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        texts[first - 1 : node.end_lineno] = ["\n"] * (node.end_lineno - first + 1)  # type: ignore[operator]
    return "".join(texts)


def _definitions(tree: ast.Module) -> list[tuple[str, ast.stmt]]:
    """Functions of any depth, but for methods, and what else stands at the top and has a name."""
    methods = {n for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body}
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n not in methods]
    named: list[tuple[str, ast.stmt]] = [(n.name, n) for n in found]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            named.append((node.name, node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named.append((node.targets[0].id, node))
    return named


def _reached(source: str) -> set[str]:
    """The names that a kernel comes to."""
    tree = ast.parse(source)
    definitions = _definitions(tree)
    apart = [node for _, node in definitions]
    main = [n for n in tree.body if isinstance(n, ast.If) and "__name__" in _names(n.test)]
    used: set[str] = set()
    found = {kernel_entry(source)}
    found |= _names(*(n for n in tree.body if n not in main), but=apart)
    while found - used:
        used |= found
        below = (n for name, d in definitions if name in used for n in ast.iter_child_nodes(d))
        found = _names(*below, but=apart)
    return used


def _names(*nodes: ast.AST, but: Container[ast.AST] = ()) -> set[str]:
    """The names in these nodes, and in none of those others."""
    own = {node.id for node in nodes if isinstance(node, ast.Name)}
    below = (_names(*ast.iter_child_nodes(node), but=but) for node in nodes if node not in but)
    return own.union(*below)


def _compared(program: Program, twin: Program, arguments: Sequence[Any]) -> Proof:
    arrays = [a for a in arguments if isinstance(a, np.ndarray) and a.ndim]
    one, other = (compute.execute(p, [a.copy() for a in arrays]) for p in (program, twin))
    difference = 0.0 if len(one) == len(other) else float("inf")
    for first, second in zip(one, other, strict=False):
        if first is not None and second is not None:
            difference = max(difference, _difference(first, second))
    before, after = counted(program), counted(twin)
    return Proof(difference, *_where_they_differ(before, after))


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return float("inf")
    first, second = one.astype(np.float64), other.astype(np.float64)
    largest = max(float(np.nanmax(np.abs(first), initial=0.0)), 1e-30)
    with np.errstate(invalid="ignore"):
        gap = np.where((first == second) | (np.isnan(first) & np.isnan(second)), 0.0,
                       np.abs(first - second))  # fmt: skip
    return float(np.max(gap, initial=0.0)) / largest


def counted(program: Program) -> dict[str, int]:
    """How often each opcode is executed; a tile in SBUF that is made with a value counts as the memset
    that it is (in PSUM a sum of products begins by itself)."""
    found: Counter[str] = Counter()

    def count(nodes: Sequence[ProgramNode], tensors: Sequence[Tensor], times: int) -> None:
        filled = [t for t in tensors if t.fill is not None and t.buffer is Buffer.SBUF]
        found["memset"] += sum(times * math.prod(t.block_shape) for t in filled if not t.lazy_fill)
        for node in nodes:
            if isinstance(node, Loop):
                count(node.body, node.tensors, times * node.variable.trips)
            else:
                found[node.opcode] += times

    count(program.body, program.tensors, 1)
    return {opcode: times for opcode, times in found.items() if times}


def _where_they_differ(
    before: Mapping[str, int], after: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    keys = [k for k in sorted({*before, *after}) if before.get(k, 0) != after.get(k, 0)]
    return {k: before.get(k, 0) for k in keys}, {k: after.get(k, 0) for k in keys}


def _laid_out(source: str, original: str) -> str:
    """Long lines on several, but for the author's own and those that would mean something else."""
    kept = set(original.splitlines())
    lines = source.splitlines()
    meant = ast.dump(ast.parse(source))
    at = 0
    while at < len(lines):
        laid = [lines[at]] if lines[at] in kept else wrapped(lines[at])
        if len(laid) > 1:
            tried = [*lines[:at], *laid, *lines[at + 1 :]]
            if _meaning("\n".join(tried)) == meant:
                lines = tried
                at += len(laid) - 1
        at += 1
    return re.sub(r"\n{5,}", "\n\n\n", "\n".join(lines) + "\n")


def _meaning(source: str) -> str:
    try:
        return ast.dump(ast.parse(source))
    except SyntaxError:
        return ""
