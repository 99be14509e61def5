"""How the calls of one dialect are written in the other."""

from __future__ import annotations

import inspect
from functools import cache
from importlib import import_module

from accelopt.kernels.nki.api_notes import PACKAGES
from accelopt.sim.dialects.dialect import Dialect
from accelopt.sim.instruction_set import OPCODES

SHAPED = frozenset(
    "nc_transpose nc_matmul tensor_reduce tensor_partition_reduce bn_stats bn_aggr max8 nc_find_index8 "
    "memset iota affine_select local_gather sequence_bounds dma_transpose".split()
)
"""Calls whose result has a shape of its own."""


@cache
def calls(dialect: Dialect) -> dict[str, tuple[str, ...]]:
    """The parameters of each call of nisa, in order."""
    isa = import_module(f"{PACKAGES[dialect]}.isa")
    functions = {name: getattr(isa, name) for name in isa.__all__}
    return {
        name: tuple(inspect.signature(function).parameters)
        for name, function in functions.items()
        if inspect.isfunction(function)
    }


def in_place(function: str) -> bool:
    """True for a call of nisa that writes an operand in both dialects."""
    return "dst" in calls("neuronxcc").get(function, ())


def like(function: str) -> str:
    """The operand whose shape, and format by default, the result of a call of nisa has; empty where it
    has its own, is an operand, or where a dialect does not have the call."""
    if function in SHAPED or in_place(function) or function not in calls("neuronxcc"):
        return ""
    return operand(function)


def operand(function: str) -> str:
    """The first operand of a call of nisa, empty where there is none."""
    return next((name for name in calls("nki").get(function, ()) if name not in ("dst", "op")), "")


def masked(function: str) -> str:
    """The operand of which a mask says what takes part; empty where it says so of the result."""
    return (
        operand(function) if function in OPCODES and OPCODES[function].mask_over == "data" else ""
    )


BINARY = frozenset(
    "add subtract multiply divide maximum minimum power mod fmod equal not_equal less less_equal "
    "greater greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "left_shift right_shift".split()
)
OPERATORS = {
    "Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide",
    "Power": "power", "Modulo": "mod", "BitAnd": "bitwise_and", "BitOr": "bitwise_or",
    "BitXor": "bitwise_xor", "LeftShift": "left_shift", "RightShift": "right_shift",
}  # fmt: skip
AUGMENTED = {
    "AddAssign": "add", "SubtractAssign": "subtract", "MultiplyAssign": "multiply",
    "DivideAssign": "divide",
}  # fmt: skip

GONE = {
    "loop_reduce": "accumulate with nisa.tensor_tensor",
    "all_reduce": "exchange tiles with nisa.sendrecv",
    "atomic_rmw": "use nisa.dma_compute",
    "spmd_dim": "launch on the cores of a logical core",
    "tensor_copy_dynamic_src": "use .ap(scalar_offset=...)",
    "tensor_copy_dynamic_dst": "use .ap(scalar_offset=...)",
}
"""What a translation leaves to people, and what they would write."""

NAMES = {
    "nc_transpose": "turned", "nc_matmul": "product", "matmul": "product", "activation": "activated",
    "tensor_reduce": "reduced", "tensor_copy": "copied", "memset": "filled", "bn_stats": "statistics",
    "bn_aggr": "moments", "tensor_tensor_scan": "scanned", "reciprocal": "inverse",
}  # fmt: skip
"""What a tile is called that has no name in the kernel."""
