"""How the calls of one dialect are written in the other."""

from __future__ import annotations

from typing import NamedTuple


class CallForm(NamedTuple):
    """A nisa call whose result has the shape of one operand: its parameters in order, the operand,
    and whose format the result has by default."""

    parameters: tuple[str, ...]
    like: str
    promotes: bool = False


def _form(parameters: str, like: str, promotes: bool = False) -> CallForm:
    return CallForm(tuple(parameters.split()), like, promotes)


LIKE: dict[str, CallForm] = {
    "activation": _form("op data bias scale reduce_op reduce_res reduce_cmd", "data"),
    "activation_reduce": _form("op data reduce_op reduce_res bias scale", "data"),
    "tensor_scalar": _form("data op0 operand0 reverse0 op1 operand1 reverse1 engine", "data"),
    "tensor_scalar_reduce": _form("data op0 operand0 reduce_op reduce_res reverse0", "data"),
    "scalar_tensor_tensor": _form("data op0 operand0 op1 operand1 reverse0 reverse1", "data"),
    "tensor_tensor": _form("data1 data2 op engine", "data1", promotes=True),
    "tensor_tensor_scan": _form(
        "data0 data1 initial op0 op1 reverse0 reverse1", "data0", promotes=True
    ),
    "reciprocal": _form("data", "data"),
    "tensor_copy": _form("src engine", "src"),
    "dropout": _form("data prob", "data"),
    "nc_match_replace8": _form("data vals imm dst_idx", "data"),
    "range_select": _form(
        "on_true_tile comp_op0 comp_op1 bound0 bound1 reduce_cmd reduce_res reduce_op range_start "
        "on_false_value",
        "on_true_tile",
    ),
}
"""Calls whose result is as large as one of their operands."""

SHAPED: dict[str, tuple[str, ...]] = {
    "nc_transpose": ("data", "engine"),
    "nc_matmul": (
        "stationary", "moving", "is_stationary_onezero", "is_moving_onezero", "is_transpose",
        "tile_position", "tile_size", "perf_mode",
    ),
    "tensor_reduce": ("op", "data", "axis", "negate", "keepdims"),
    "tensor_partition_reduce": ("op", "data"),
    "bn_stats": ("data",),
    "bn_aggr": ("data",),
    "max8": ("src",),
    "nc_find_index8": ("data", "vals"),
    "memset": ("shape", "value", "dtype", "engine"),
    "iota": ("expr", "dtype"),
    "affine_select": ("pred", "on_true_tile", "on_false_value"),
    "local_gather": ("src_buffer", "index", "num_elem_per_idx", "num_valid_indices"),
}  # fmt: skip
"""Calls whose result has a shape of its own."""

IN_PLACE: dict[str, tuple[str, ...]] = {
    "dma_copy": ("dst", "src", "oob_mode", "dge_mode"),
    "tensor_copy_predicated": ("dst", "src", "predicate", "reverse_pred"),
    "select_reduce": (
        "dst", "predicate", "on_true", "on_false", "reduce_res", "reduce_cmd", "reduce_op",
        "reverse_pred",
    ),
    "nc_stream_shuffle": ("dst", "src", "shuffle_mask"),
}  # fmt: skip
"""Calls that write an operand in both dialects."""

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
    "shared_constant": "nl.shared_constant of nki has other keywords",
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
