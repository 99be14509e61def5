"""Bytes and operations of one run of a statement, for all threads of a block: counts, no time.

Threads are those of `.reqntid` (or the most by `.maxntid`). Warp-wide instructions count once for 32
threads, `wgmma` once for 128; bulk and tensor copies and `tcgen05` are issued by one thread. Where the
text does not say how many threads a block has, counts are those of one thread. Shapes and sizes: "PTX
ISA" 9.0, chapter 9 (NVIDIA).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import pairwise
from math import prod
from operator import add, attrgetter

from accelopt.ptx.module import Function, Module, NotPtx, Statement
from accelopt.ptx.phases import FLOATS, SFU, bits, plain, space
from accelopt.ptx.register_dataflow import Registers, integer, registers

_SHAPE = re.compile(r"m(\d+)n(\d+)(?:k(\d+))?$")
_ONE = frozenset("add sub mul min max div".split())
_MATRIX_BYTES = {"m8n8": 128, "m16n16": 256, "m8n16": 128, "m16n8": 128}


@dataclass(frozen=True)
class Work:
    """Bytes and operations. `shared` holds what is read and written of shared memory, `local` what is
    read and written of the threads' own (spills). `flops` are of the tensor cores (2·M·N·K, integers
    too) and of floating-point instructions (fma 2, the others 1, packed twice), `sfu_ops` of the
    special functions. `expected_bytes` are those that mbarriers are told to wait for: what a tensor
    copy moves stands in its map. `masked` statements may be skipped by some threads; of `unknown_bytes`
    and `unknown_flops` statements the amount cannot be told; `generic` ones name no memory, and count
    as global."""

    global_read_bytes: int = 0
    global_write_bytes: int = 0
    shared_read_bytes: int = 0
    shared_write_bytes: int = 0
    local_bytes: int = 0
    flops: int = 0
    sfu_ops: int = 0
    atomic_ops: int = 0
    expected_bytes: int = 0
    instruction_count: int = 0
    masked: int = 0
    unknown_bytes: int = 0
    unknown_flops: int = 0
    generic: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(*map(add, self.amounts, other.amounts))

    def times(self, runs: int) -> Work:
        """The work of so many runs."""
        return Work(*(amount * runs for amount in self.amounts))

    @property
    def amounts(self) -> tuple[int, ...]:
        """All counts, in the order of the fields."""
        found: tuple[int, ...] = _AMOUNTS(self)
        return found

    @property
    def global_bytes(self) -> int:
        """Read and written."""
        return self.global_read_bytes + self.global_write_bytes

    @property
    def shared_bytes(self) -> int:
        """Read and written."""
        return self.shared_read_bytes + self.shared_write_bytes


_AMOUNTS = attrgetter(*(one.name for one in fields(Work)))


def work(statement: Statement, function: Function) -> Work:
    """What one run of `statement` by the whole block moves and computes; unknown opcodes count as an
    instruction."""
    one, known = statement, registers(function)
    threads = function.threads or 1
    copied = [part for part in one.operands if part.startswith("[")]
    sizes = len(one.operands) - len(copied) - ("cache_hint" in one.name)
    partly = one.name.startswith("cp.async.c") and sizes > 1  # the rest of the size is zeros
    masked = int(bool(one.guard) or partly)
    found = _OF.get(one.opcode, _scalar)(one, known, threads)
    return found + Work(instruction_count=1, masked=masked)


def _type(one: Statement) -> str:
    return next((kind for kind in reversed(one.modifiers) if bits(kind)), "b32")


def _lanes(one: Statement) -> int:
    return next((int(word[1:]) for word in one.modifiers if re.fullmatch(r"v[248]", word)), 1)


def _bytes(one: Statement) -> int:
    """Of one thread."""
    return (bits(_type(one)) or 0) * _lanes(one) // 8


def _moved(where: str, amount: int, write: bool) -> Work:
    """Bytes to or from a memory."""
    if where == "local":
        return Work(local_bytes=amount)
    if where == "shared":
        return Work(shared_write_bytes=amount) if write else Work(shared_read_bytes=amount)
    if where in ("global", "generic"):
        generic = int(where == "generic")
        if write:
            return Work(global_write_bytes=amount, generic=generic)
        return Work(global_read_bytes=amount, generic=generic)
    return Work()


def _access(one: Statement, known: Registers, threads: int) -> Work:
    if one.modifiers[:1] == ("bulk",):  # st.bulk [a], size, value: one thread
        size = known.constant(one.operands[1], one.scope) if len(one.operands) > 1 else None
        return Work(unknown_bytes=1) if size is None else Work(shared_write_bytes=size)
    where = "shared" if one.modifiers[:1] == ("async",) else space(one, known)
    return _moved(where, _bytes(one) * threads, one.opcode == "st")


def _multimem(one: Statement, known: Registers, threads: int) -> Work:
    if "cp" in one.modifiers:
        return Work(unknown_bytes=1)
    amount = _bytes(one) * threads
    if one.modifiers[:1] == ("ld_reduce",):
        return Work(global_read_bytes=amount)
    if one.modifiers[:1] == ("red",):
        return Work(atomic_ops=_lanes(one) * threads)
    return Work(global_write_bytes=amount)


def _matrix(one: Statement, known: Registers, threads: int) -> Work:
    count = next((int(word[1:]) for word in one.modifiers if re.fullmatch(r"x[124]", word)), 1)
    size = next((_MATRIX_BYTES[word] for word in one.modifiers if word in _MATRIX_BYTES), 128)
    return _moved("shared", size * count * threads // 32, one.opcode == "stmatrix")


def _shape(one: Statement) -> tuple[int, int, int] | None:
    for word in one.modifiers:
        found = _SHAPE.match(word)
        if found:
            return int(found[1]), int(found[2]), int(found[3] or 1)
    return None


def _mma(one: Statement, known: Registers, threads: int) -> Work:
    shape = _shape(one)
    if shape is None:
        return Work(unknown_flops=1)
    products = 4 if shape == (8, 8, 4) and "f64" not in one.modifiers else 1
    return Work(flops=2 * prod(shape) * products * threads // 32)


def _wmma(one: Statement, known: Registers, threads: int) -> Work:
    shape = _shape(one)
    if one.modifiers[:1] == ("mma",):
        return _mma(one, known, threads)
    if shape is None:
        return Work(unknown_bytes=1)
    m, n, k = shape
    part = "".join(one.modifiers[1:2])
    count = {"a": m * k, "b": k * n}.get(part, m * n)
    kind = next((kind for kind in one.modifiers[2:] if bits(kind)), "b32")
    amount = count * (bits(kind) or 0) // 8 * threads // 32
    return _moved(space(one, known), amount, one.modifiers[:1] == ("store",))


def _wgmma(one: Statement, known: Registers, threads: int) -> Work:
    if one.modifiers[:1] != ("mma_async",):
        return Work()
    shape = _shape(one)
    if shape is None:
        return Work(unknown_flops=1)
    m, n, k = shape
    place = next(at for at, word in enumerate(one.modifiers) if _SHAPE.match(word))
    kinds = [bits(kind) or 0 for kind in one.modifiers[place + 2 : place + 4]]
    left, right = kinds if len(kinds) == 2 else (0, 0)
    stored = m * k // (2 if "sp" in one.modifiers else 1) * left
    if len(one.operands) > 1 and one.operands[1].startswith("{"):
        stored = 0  # the left operand lies in registers
    read = (stored + n * k * right) // 8
    groups = threads / 128
    return Work(flops=int(2 * m * n * k * groups), shared_read_bytes=int(read * groups))


def _tcgen05(one: Statement, known: Registers, threads: int) -> Work:
    first = one.modifiers[0] if one.modifiers else ""
    return Work(unknown_flops=int(first == "mma"), unknown_bytes=int(first == "cp"))


def _copy(one: Statement, known: Registers, threads: int) -> Work:
    """`cp.async`: a thread's bytes are its size operand. `cp.async.bulk`: one thread's."""
    words = [plain(word) for word in one.modifiers]
    if {"wait_group", "wait_all", "commit_group", "prefetch", "arrive"} & set(words):
        return Work()
    ends = [word for word in words if word in ("global", "shared")]  # destination, source
    if "tensor" in words or len(ends) < 2:
        return Work(unknown_bytes=1)
    size = known.constant(one.operands[2], one.scope) if len(one.operands) > 2 else None
    if size is None:
        return Work(unknown_bytes=1)
    amount = size if "bulk" in words else size * threads
    return _moved(ends[1], amount, False) + _moved(ends[0], amount, True)


def _mbarrier(one: Statement, known: Registers, threads: int) -> Work:
    if "expect_tx" not in one.modifiers or not one.operands:
        return Work()
    size = known.constant(one.operands[-1], one.scope)
    return Work(unknown_bytes=1) if size is None else Work(expected_bytes=size)


def _scalar(one: Statement, known: Registers, threads: int) -> Work:
    kinds = [kind for kind in one.modifiers if kind in FLOATS]
    if not kinds:
        return Work()
    packed = 2 if kinds[0].endswith("x2") else 1
    if one.opcode in SFU:
        return Work(sfu_ops=packed * threads)
    if one.opcode in ("fma", "mad"):
        return Work(flops=2 * packed * threads)
    if one.opcode in _ONE:
        more = len(one.operands) - 2 if one.opcode in ("min", "max") else 1
        return Work(flops=max(1, more) * packed * threads)
    return Work()


_OF: dict[str, Callable[[Statement, Registers, int], Work]] = {
    "ld": _access, "st": _access, "multimem": _multimem, "ldmatrix": _matrix, "stmatrix": _matrix,
    "mma": _mma, "wmma": _wmma, "wgmma": _wgmma, "tcgen05": _tcgen05, "cp": _copy, "mbarrier": _mbarrier,
    "ldu": lambda one, _, threads: Work(global_read_bytes=_bytes(one) * threads),
    **dict.fromkeys(("atom", "red", "sured"), lambda one, _, n: Work(atomic_ops=_lanes(one) * n)),
    **dict.fromkeys(("tex", "tld4", "suld", "sust"), lambda *_: Work(unknown_bytes=1)),
}  # fmt: skip


def shared_memory(function: Function, module: Module) -> tuple[int, bool]:
    """Bytes of the `.shared` variables of a function, and of those between functions that it names;
    whether it names one whose size the launch says."""
    named = {
        name
        for one in function.statements
        for part in one.operands
        for name in re.findall(r"[A-Za-z_$%][\w$]*", part)
    }
    found, dynamic = 0, False
    around = [one for one in module.declarations if named & set(one.words)]
    for one in (*around, *function.declarations):
        if ".shared" not in one.words:
            continue
        width = next((bits(word[1:]) for word in reversed(one.words) if bits(word[1:])), 0) or 0
        sizes = [
            _extent(word)
            for before, word in pairwise(one.words)
            if before == "[" and word[0].isdigit()
        ]
        dynamic |= ".extern" in one.words
        found += 0 if ".extern" in one.words else width * prod(sizes) // 8
    return found, dynamic


def _extent(word: str) -> int:
    """The elements of a dimension. Raises NotPtx for what is no integer of PTX."""
    found = integer(word)
    if found is None:
        raise NotPtx(f"{word!r} is no number of elements")
    return found
