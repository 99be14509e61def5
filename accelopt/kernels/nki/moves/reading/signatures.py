"""The NKI calls that moves understand: canonical names, parameter order, what they write.

Names follow the public API of `neuronxcc.nki` (Beta 1); `nl`, `nisa` and `nki` stand for its
`language`, `isa` and top module whatever a kernel imports them as.
"""

from __future__ import annotations

MODULES = {
    "neuronxcc.nki": "nki",
    "neuronxcc.nki.language": "nl",
    "neuronxcc.nki.isa": "nisa",
    "neuronxcc.nki.typing": "nt",
    "neuronxcc.nki.compiler": "ncc",
    "neuronxcc": "neuronxcc",
    "numpy": "np",
    "math": "math",
}

# Attributes that lead from one canonical module to another: nki.language is nl.
SUBMODULES = {
    "nki.language": "nl",
    "nki.isa": "nisa",
    "nki.typing": "nt",
    "nki.compiler": "ncc",
    "neuronxcc.nki": "nki",
}

LOOPS = {
    "nl.affine_range": "affine",
    "nl.sequential_range": "sequential",
    "nl.static_range": "static",
    "range": "sequential",
}

UNARY = frozenset(
    "exp log square sqrt rsqrt sigmoid silu gelu tanh relu abs negative reciprocal sign sin cos erf "
    "softplus mish floor ceil trunc".split()
)
BINARY = frozenset("add subtract multiply divide maximum minimum power".split())
REDUCTIONS = frozenset("sum max min mean prod".split())

SIGNATURES: dict[str, tuple[str, ...]] = {
    "nl.load": ("src", "mask", "dtype"),
    "nl.store": ("dst", "value", "mask"),
    "nl.load_transpose2d": ("src", "mask", "dtype"),
    "nl.copy": ("src", "mask", "dtype"),
    "nl.broadcast_to": ("src", "shape"),
    "nl.ndarray": ("shape", "dtype", "buffer", "name"),
    "nl.zeros": ("shape", "dtype", "buffer", "name"),
    "nl.ones": ("shape", "dtype", "buffer", "name"),
    "nl.full": ("shape", "fill_value", "dtype", "buffer", "name"),
    "nl.matmul": ("x", "y", "transpose_x", "mask"),
    "nl.transpose": ("x", "dtype", "mask"),
    "nl.loop_reduce": ("x", "op", "loop_indices", "dtype", "mask"),
    "nl.where": ("condition", "x", "y", "dtype", "mask"),
    "nl.shared_constant": ("constant", "dtype"),
    "nisa.nc_matmul": (
        "stationary",
        "moving",
        "is_stationary_onezero",
        "is_moving_onezero",
        "is_transpose",
        "mask",
    ),
    "nisa.nc_transpose": ("data", "mask", "dtype", "engine"),
    "nisa.activation": (
        "op",
        "data",
        "bias",
        "scale",
        "reduce_op",
        "reduce_res",
        "reduce_cmd",
        "mask",
        "dtype",
    ),
    "nisa.activation_reduce": ("op", "data", "reduce_op", "reduce_res", "bias", "scale"),
    "nisa.tensor_reduce": ("op", "data", "axis", "mask", "dtype", "negate", "keepdims"),
    "nisa.tensor_tensor": ("data1", "data2", "op", "dtype", "mask", "engine"),
    "nisa.tensor_scalar": (
        "data",
        "op0",
        "operand0",
        "reverse0",
        "op1",
        "operand1",
        "reverse1",
        "dtype",
        "mask",
        "engine",
    ),
    "nisa.scalar_tensor_tensor": ("data", "op0", "operand0", "op1", "operand1"),
    "nisa.tensor_tensor_scan": ("data0", "data1", "initial", "op0", "op1"),
    "nisa.tensor_copy": ("src", "mask", "dtype", "engine"),
    "nisa.reciprocal": ("data", "dtype", "mask"),
    "nisa.memset": ("shape", "value", "dtype", "mask", "engine"),
    "nisa.affine_select": ("pred", "on_true_tile", "on_false_value", "mask", "dtype"),
    "nisa.iota": ("expr", "dtype", "mask"),
    "nisa.dma_copy": ("dst", "src", "mask"),
    **{f"nl.{name}": ("x", "dtype", "mask") for name in UNARY},
    **{f"nl.{name}": ("x", "y", "dtype", "mask") for name in BINARY},
    **{f"nl.{name}": ("x", "axis", "dtype", "mask", "keepdims") for name in REDUCTIONS},
}

# Arguments written in place, besides the result.
WRITES = {
    "nl.store": ("dst",),
    "nisa.activation": ("reduce_res",),
    "nisa.activation_reduce": ("reduce_res",),
    "nisa.tensor_scalar_reduce": ("reduce_res",),
    "nisa.dma_copy": ("dst",),
}

DECLARATIONS = frozenset({"nl.ndarray", "nl.zeros", "nl.full", "nl.ones"})

# Results that the tensor engine leaves in PSUM.
IN_PSUM = frozenset({"nisa.nc_matmul", "nl.matmul"})

# Argument that gives the result's shape, for elementwise instructions.
SHAPED_LIKE = {
    "nl.load": "src",
    "nl.copy": "src",
    "nisa.activation": "data",
    "nisa.activation_reduce": "data",
    "nisa.tensor_scalar": "data",
    "nisa.tensor_copy": "src",
    "nisa.reciprocal": "data",
    "nisa.scalar_tensor_tensor": "data",
    "nisa.tensor_tensor_scan": "data0",
    "nisa.affine_select": "on_true_tile",
    "nl.loop_reduce": "x",
    **{f"nl.{name}": "x" for name in UNARY},
}

CONSTANTS = {
    "nl.tile_size.pmax": 128,
    "nl.tile_size.psum_fmax": 512,
    "nl.tile_size.gemm_stationary_fmax": 128,
    "nl.tile_size.gemm_moving_fmax": 512,
    "nl.tile_size.bn_stats_fmax": 512,
}

DTYPE_BYTES = {
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "tfloat32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
    "uint16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "bool_": 1,
    "float8_e4m3": 1,
    "float8_e5m2": 1,
}

BUFFERS = {
    "nl.sbuf": "sbuf",
    "nl.psum": "psum",
    "nl.hbm": "hbm",
    "nl.private_hbm": "hbm",
    "nl.shared_hbm": "hbm",
}
