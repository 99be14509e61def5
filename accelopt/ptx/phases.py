"""What each PTX statement is for. Opcodes are those of "PTX ISA" 9.0, chapter 9 (NVIDIA)."""

from __future__ import annotations

import re

from accelopt.ptx.module import Statement
from accelopt.ptx.register_dataflow import Registers

GLOBAL_LOAD, GLOBAL_STORE = "global_load", "global_store"
SHARED_LOAD, SHARED_STORE = "shared_load", "shared_store"
ASYNC_COPY, ASYNC_WAIT = "async_copy", "async_wait"
BARRIER, FENCE, MBARRIER = "barrier", "memory_fence", "mbarrier"
COMPUTE, ATOMIC, WARP = "compute", "atomic", "warp_transfer"
MOVE, CONTROL, ADDRESS, OTHER = "data_move", "control", "address", "other"
UNKNOWN = "unknown"
CUTS = frozenset({BARRIER, ASYNC_WAIT, FENCE})

FLOATS = frozenset(
    "f16 f16x2 bf16 bf16x2 tf32 f32 f32x2 f64 e4m3 e5m2 e4m3x2 e5m2x2 e2m1x2 e2m3x2 e3m2x2 "
    "ue8m0x2".split()
)
SFU = frozenset("ex2 lg2 rcp rsqrt sqrt sin cos tanh".split())
ARITHMETIC = (
    frozenset(
        "add sub mul mad fma mul24 mad24 sad div rem abs neg min max popc clz bfind fns brev bfe bfi szext "
        "bmsk dp4a dp2a addc subc madc and or xor not cnot lop3 shf shl shr selp slct cvt cvta copysign "
        "prmt vadd vsub vabsdiff vmin vmax vshl vshr vmad vset vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 "
        "vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 vset4 isspacep mapa getctarank".split()
    )
    | SFU
)
_PLAIN = {
    "setp": CONTROL, "set": COMPUTE, "testp": CONTROL, "bra": CONTROL, "brx": CONTROL, "call": CONTROL,
    "ret": CONTROL, "exit": CONTROL, "trap": CONTROL, "brkpt": CONTROL,
    "mov": MOVE, "movmatrix": WARP, "shfl": WARP, "vote": WARP, "match": WARP, "redux": WARP,
    "activemask": WARP, "elect": WARP, "bar": BARRIER, "barrier": BARRIER, "fence": FENCE,
    "membar": FENCE, "atom": ATOMIC, "red": ATOMIC, "mbarrier": MBARRIER, "mma": COMPUTE,
    "ldmatrix": SHARED_LOAD, "stmatrix": SHARED_STORE, "ldu": GLOBAL_LOAD, "tex": GLOBAL_LOAD,
    "tld4": GLOBAL_LOAD, "suld": GLOBAL_LOAD, "sust": GLOBAL_STORE, "sured": ATOMIC,
    "prefetch": GLOBAL_LOAD, "prefetchu": GLOBAL_LOAD,
}  # fmt: skip
_OTHER = frozenset(
    "nanosleep setmaxnreg griddepcontrol pmevent alloca stacksave stackrestore createpolicy discard "
    "applypriority tensormap clusterlaunchcontrol txq suq istypep".split()
)
_TENSOR_CORE = {  # of wgmma and tcgen05, by the first modifier
    "mma": COMPUTE, "mma_async": COMPUTE, "commit_group": COMPUTE, "wait_group": ASYNC_WAIT,
    "wait": ASYNC_WAIT, "fence": FENCE, "commit": MBARRIER, "ld": MOVE, "st": MOVE, "cp": ASYNC_COPY,
    "shift": MOVE, "alloc": OTHER, "dealloc": OTHER, "relinquish_alloc_permit": OTHER,
}  # fmt: skip
_BITS = re.compile(r"[busf](8|16|32|64|128)$")
_NARROW = {"e4m3": 8, "e5m2": 8, "e2m1": 4, "e2m3": 6, "e3m2": 6, "s4": 4, "u4": 4, "b1": 1,
           "f16": 16, "bf16": 16, "tf32": 32, "f16x2": 32, "bf16x2": 32, "f32x2": 64}  # fmt: skip


def plain(modifier: str) -> str:
    """A modifier without what follows `::`."""
    return modifier.split("::")[0]


def bits(kind: str) -> int | None:
    """The width of a type; None for a modifier that is none."""
    if kind in _NARROW:
        return _NARROW[kind]
    found = _BITS.match(kind)
    return int(found[1]) if found else None


def space(one: Statement, known: Registers, operand: str = "") -> str:
    """The memory that a load or store goes to: as it says, or where its pointer comes from (`local`,
    `shared`), else `generic`."""
    for modifier in map(plain, one.modifiers):
        if modifier in ("global", "shared", "local", "param", "const"):
            return modifier
    operand = operand or next((part for part in one.operands if part.startswith("[")), "")
    found: set[str] = set()
    for name in known.names(operand, one.scope):
        for at in known.origins(name):
            origin = known.function.statements[at]
            if origin.opcode == "cvta" and "to" not in origin.modifiers:
                found.update(map(plain, origin.modifiers[:1]))
            elif origin.opcode == "mapa":
                found.add("shared")
            elif origin.opcode in ("ld", "cvta"):
                found.add("global")
    return found.pop() if len(found) == 1 and "global" not in found else "generic"


def phase(one: Statement, known: Registers, at: int) -> str:
    """What statement number `at` is for. Integer arithmetic is `address` where an address, a descriptor
    or a branch depends on it, else `compute`."""
    opcode, first = one.opcode, plain(one.modifiers[0]) if one.modifiers else ""
    if opcode in ARITHMETIC:
        return _arithmetic(one, known, at)
    if opcode in ("ld", "st"):
        return _access(one, known)
    if opcode in ("wgmma", "tcgen05"):
        return _TENSOR_CORE.get(first, UNKNOWN)
    if opcode == "cp":
        words = set(map(plain, one.modifiers))
        if "mbarrier" in words and "arrive" in words:
            return MBARRIER
        if words & {"wait_group", "wait_all"}:
            return ASYNC_WAIT
        return GLOBAL_LOAD if "prefetch" in words else ASYNC_COPY
    if opcode == "wmma":
        return _wmma(one, first)
    if opcode == "multimem":
        if "cp" in one.modifiers:
            return ASYNC_COPY
        return {"ld_reduce": GLOBAL_LOAD, "st": GLOBAL_STORE, "red": ATOMIC}.get(first, UNKNOWN)
    if opcode in _PLAIN:
        return _PLAIN[opcode]
    if opcode == "tensormap" and "cp_fenceproxy" in one.modifiers:
        return FENCE
    return OTHER if opcode in _OTHER else UNKNOWN


def _arithmetic(one: Statement, known: Registers, at: int) -> str:
    if one.opcode == "cvta":
        return ADDRESS
    if one.opcode == "prmt":
        return MOVE
    kinds = [kind for kind in one.modifiers if kind in FLOATS]
    if kinds:
        return COMPUTE
    if one.modifiers and one.modifiers[-1] == "pred":
        return CONTROL
    return ADDRESS if set(known.effects[at].writes) <= known.indices else COMPUTE


def _access(one: Statement, known: Registers) -> str:
    where = space(one, known)
    if where == "shared" or (one.opcode == "st" and one.modifiers[:1] in (("async",), ("bulk",))):
        return SHARED_LOAD if one.opcode == "ld" else SHARED_STORE
    if where in ("local", "param", "const"):
        return MOVE
    return GLOBAL_LOAD if one.opcode == "ld" else GLOBAL_STORE


def _wmma(one: Statement, first: str) -> str:
    shared = "shared" in map(plain, one.modifiers)
    if first == "load":
        return SHARED_LOAD if shared else GLOBAL_LOAD
    if first == "store":
        return SHARED_STORE if shared else GLOBAL_STORE
    return COMPUTE if first == "mma" else UNKNOWN


def phases(known: Registers) -> tuple[str, ...]:
    """The phase of every statement of a function, in order."""
    return tuple(phase(one, known, at) for at, one in enumerate(known.function.statements))
