"""Every documented function of nki.language and nki.isa by family, against NumPy."""

import math

import numpy as np
import pytest

from accelopt.sim.dialects.neuronxcc import isa, language
from accelopt.sim.errors import KernelError

RNG = np.random.default_rng(1)
X = RNG.standard_normal((128, 64)).astype(np.float32)
Y = RNG.standard_normal((128, 64)).astype(np.float32) + 3
P = np.abs(X) + 0.5
I = RNG.integers(0, 100, (128, 64)).astype(np.int32)
J = RNG.integers(1, 8, (128, 64)).astype(np.int32)
C = RNG.random((128, 1)).astype(np.float32)

KERNEL = """
@nki.jit
def kernel(x, y, c):
    t, u, v = nl.load(x), nl.load(y), nl.load(c)
    {before}
    r = {call}
    out = nl.ndarray(r.shape, dtype=r.dtype, buffer=nl.shared_hbm)
    nl.store(out, r)
    return out
"""


def evaluate(kernel_text, call, x=X, y=Y, c=C, before="pass"):
    return kernel_text(KERNEL.format(call=call, before=before)).run(x, y, c)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


UNARY = {
    "abs": np.abs, "negative": np.negative, "sign": np.sign, "trunc": np.trunc,
    "floor": np.floor, "ceil": np.ceil, "exp": np.exp, "square": np.square, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "arctan": np.arctan, "tanh": np.tanh, "erf": erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "sigmoid": sigmoid, "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), "gelu_apprx_tanh": tanh_gelu,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_dx": lambda x: 0.5 * (1 + erf(x / math.sqrt(2)))
    + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "logical_not": np.logical_not,
}  # fmt: skip
POSITIVE = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
            "reciprocal": np.reciprocal}  # fmt: skip
BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "mod": np.mod, "fmod": np.fmod,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor,
}  # fmt: skip
INTEGER = {
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY | POSITIVE)
def test_unary(kernel_text, name):
    x, near = (P, {"rtol": 1e-5}) if name in POSITIVE else (X, {"atol": 2e-6})
    found = evaluate(kernel_text, f"nl.{name}(t)", x=x)
    assert np.allclose(found, (UNARY | POSITIVE)[name](x), **near)


@pytest.mark.parametrize("name", BINARY)
def test_binary(kernel_text, name):
    function = BINARY[name]
    assert np.allclose(evaluate(kernel_text, f"nl.{name}(t, u)"), function(X, Y), atol=1e-5)
    assert np.allclose(evaluate(kernel_text, f"nl.{name}(t, 1.5)"), function(X, 1.5), atol=1e-5)
    assert np.allclose(evaluate(kernel_text, f"nl.{name}(1.5, u)"), function(1.5, Y), atol=1e-5)
    assert np.allclose(evaluate(kernel_text, f"nl.{name}(t, v)"), function(X, C), atol=1e-5)


@pytest.mark.parametrize(
    ("comparison", "holds"),
    [(">= 3", np.greater_equal), ("== 3", np.equal), ("!= 3", np.not_equal)],
)
def test_an_affine_selection_by_each_comparison(kernel_text, comparison, holds):
    place = "nl.arange(128)[:, None] - 2 * nl.arange(64)[None, :]"
    found = evaluate(kernel_text, f"nisa.affine_select(({place}) {comparison}, t, -7.0)")
    kept = holds(np.arange(128)[:, None] - 2 * np.arange(64)[None, :], 3)
    np.testing.assert_array_equal(found, np.where(kept, X, np.float32(-7)))


@pytest.mark.parametrize("name", INTEGER)
def test_bitwise(kernel_text, name):
    got = evaluate(kernel_text, f"nl.{name}(t, u)", x=I, y=J)
    assert got.dtype == np.int32 and np.array_equal(got, INTEGER[name](I, J))
    assert np.array_equal(evaluate(kernel_text, "nl.invert(t)", x=I), ~I)


def test_power(kernel_text):
    assert np.allclose(evaluate(kernel_text, "nl.power(t, 2.0)", x=P), P**2, rtol=1e-5)
    assert np.allclose(evaluate(kernel_text, "nl.power(t, u)", x=P), P**Y, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("t + u", X + Y), ("t - 1", X - 1), ("1 - t", 1 - X), ("t * u", X * Y), ("2 / u", 2 / Y),
        ("-t", -X), ("t > u", X > Y), ("(t > 0) & (u > 3)", (X > 0) & (Y > 3)), ("~(t > 0)", X <= 0),
        ("t ** 2.0", X**2), ("t == t", X == X), ("abs(t)", np.abs(X)),
    ],
)  # fmt: skip
def test_operators(kernel_text, call, expected):
    assert np.allclose(evaluate(kernel_text, call), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "function"),
    [("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod), ("mean", np.mean),
     ("var", np.var), ("all", np.all)],
)  # fmt: skip
def test_reductions(kernel_text, name, function):
    expected = function(P, axis=1, keepdims=True)
    assert np.allclose(evaluate(kernel_text, f"nl.{name}(t, axis=1)", x=P), expected, rtol=1e-4)


def softmax(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


COMPOSED = {
    "nl.softmax(t, axis=1)": softmax(X),
    "nl.rms_norm(t, u, axis=1, n=64)": X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-6) * Y,
    "nl.where(t > 0, t, u)": np.where(X > 0, X, Y),
    "nl.where(t > 0, t, 0.5)": np.where(X > 0, X, 0.5),
    "nl.matmul(t[0:64, :], u[0:64, :])": X[:64] @ Y[:64],
    "nl.matmul(t, u, transpose_x=True)": X.T @ Y,
    "nl.transpose(t)": X.T,
    "nl.copy(t[:, 0:8])": X[:, :8],
    "nl.broadcast_to(t[0:1, :], shape=(128, 64))": np.repeat(X[:1], 128, 0),
    "nl.load_transpose2d(x)": X.T,
    "nl.expand_dims(v, 2)": C[:, :, None],
    "t.astype(nl.int32)": np.rint(X),
    "nl.load(x.reshape((32, 256)))": X.reshape(32, 256),
    "nl.load(nl.shared_identity_matrix(64))": np.eye(64),
    "nl.load(nl.shared_constant(np.arange(12).reshape(3, 4)))": np.arange(12).reshape(3, 4),
    "nl.zeros_like(t)": np.zeros_like(X),
    "nl.full((128, 4), 3, nl.float32, lazy_initialization=True)": np.full((128, 4), 3),
    "nl.dropout(t, 0.0)": X,
    "nl.dropout(t, 1.0)": np.zeros_like(X),
}


@pytest.mark.parametrize("call", COMPOSED)
def test_language(kernel_text, call):
    assert np.allclose(evaluate(kernel_text, call), COMPOSED[call], rtol=1e-4, atol=1e-5)


# Beside the instructions of `test_check_instructions`, which go the whole way of `accelopt check`.
ISA = {
    "nisa.activation(nl.exp, t, bias=v, scale=0.5)": np.exp(0.5 * X + C),
    "nisa.activation(nl.square, t, scale=v)": (X * C) ** 2,
    "nisa.activation(np.copy, t)": X,
    "nisa.tensor_scalar(t, nl.subtract, 1.0, reverse0=True)": 1 - X,
    "nisa.tensor_scalar(t, nl.add, 9.0, op1=nl.rsqrt, operand1=0.0)": 1 / np.sqrt(X + 9),
    "nisa.tensor_tensor(t, u, op=np.maximum)": np.maximum(X, Y),
    "nisa.tensor_tensor(t, v, op=nl.add)": X + C,
    "nisa.tensor_partition_reduce(np.max, t)": X.max(0, keepdims=True),
    "nisa.tensor_copy(t, engine=nisa.scalar_engine)": X,
    "nisa.memset((128, 4), 2.5, nl.float32)": np.full((128, 4), 2.5),
    "nisa.nc_transpose(t)": X.T,
    "nisa.nc_transpose(t[0:32, 0:16], engine=nisa.vector_engine)": X[:32, :16].T,
    "nisa.nc_transpose(t, engine=nisa.vector_engine)": X.T,  # obs: too large for it, still legal
    "nisa.nc_matmul(t, u)": X.T @ Y,
    "nisa.dma_transpose(t)": X.T,
    "nisa.dropout(t, 0.0)": X,
}  # fmt: skip


@pytest.mark.parametrize("call", ISA)
def test_isa(kernel_text, call):
    assert np.allclose(evaluate(kernel_text, call), ISA[call], rtol=1e-4, atol=1e-5)


# Beside those of `test_check_instructions`, too.
IN_PLACE = {
    "nisa.activation_reduce(nl.exp, t, reduce_op=np.add, reduce_res=r)":
        np.exp(X).sum(1, keepdims=True),
    "nisa.dma_copy(dst=r, src=c)": C,
    "nisa.nc_stream_shuffle(v, r, [255] * 32)": np.zeros((128, 1)),
}  # fmt: skip


@pytest.mark.parametrize("call", IN_PLACE)
def test_isa_in_place(kernel_text, call):
    text = kernel_text.of("x, c", shape="(128, 1)", dtype="nl.float32")(f"""
        t, v = nl.load(x), nl.load(c)
        r = nl.zeros((128, 1), dtype=nl.float32)
        {call}
        nl.store(out, r)
        """)
    assert np.allclose(text.run(X, C), IN_PLACE[call], rtol=1e-5)


def test_op_tokens_are_nl_and_numpy_functions(kernel_text):
    for token in ("nl.add", "np.add", "'add'"):
        got = evaluate(kernel_text, f"nisa.tensor_tensor(t, u, op={token})")
        assert np.allclose(got, X + Y)
    with pytest.raises(TypeError, match="Use one of"):
        evaluate(kernel_text, "nisa.tensor_tensor(t, u, op=nl.load)")


DOCUMENTED = {
    language: """abs add affine_range all all_reduce arange arctan atomic_rmw bfloat16 bfp16 bitwise_and
        bitwise_or bitwise_xor bool_ broadcast_to ceil copy cos device_print divide dropout ds
        empty_like equal erf erf_dx exp expand_dims finfo float16 float32 float8_e4m3 float8_e5m2
        floor fmod fp32 full gather_flattened gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx
        greater greater_equal hbm int16 int32 int8 invert left_shift less less_equal load
        load_transpose2d log logical_and logical_not logical_or logical_xor loop_reduce matmul max
        maximum mean mgrid min minimum mish mod multiply nc ndarray negative not_equal num_programs
        ones par_dim power private_hbm prod program_id program_ndim psum rand random_seed reciprocal
        relu right_shift rms_norm rsqrt sbuf sequential_range shared_constant shared_hbm
        shared_identity_matrix sigmoid sign silu silu_dx sin softmax softplus spmd_dim sqrt square
        static_cast static_range store subtract sum tan tanh tfloat32 tile_size transpose trunc
        uint16 uint32 uint8 var where zeros zeros_like""",
    isa: """activation activation_reduce affine_select bn_aggr bn_stats dge_mode dma_copy dma_engine
        dma_transpose dropout engine fp32 get_nc_version gpsimd_engine iota local_gather max8 memset
        nc_find_index8 nc_match_replace8 nc_matmul nc_stream_shuffle nc_transpose nc_version
        oob_mode range_select reciprocal reduce_cmd scalar_engine scalar_tensor_tensor select_reduce
        sequence_bounds tensor_copy tensor_copy_dynamic_dst tensor_copy_dynamic_src
        tensor_copy_predicated tensor_engine tensor_partition_reduce tensor_reduce tensor_scalar
        tensor_scalar_reduce tensor_tensor tensor_tensor_scan unknown_engine vector_engine""",
}
"""Names of the SDK 2.26.1 stubs, but for gemm_grid, gemm_stationary_grid and builtin_custom_op."""


@pytest.mark.parametrize("module", DOCUMENTED, ids=lambda m: m.__name__.rpartition(".")[2])
def test_every_documented_name_is_there(module):
    missing = [name for name in DOCUMENTED[module].split() if not hasattr(module, name)]
    assert not missing


RANGES = ["nl.affine_range(2)", "nl.affine_range(start=0, stop=2)", "nl.sequential_range(0, 2, 1)",
          "nl.affine_range(2, precise_schedule=True)", "nl.static_range(0, stop=2)"]  # fmt: skip


@pytest.mark.parametrize("call", RANGES)
def test_ranges_take_their_bounds_by_position_and_by_name(kernel_text, call):
    """nki-samples' pipelined_attention.py passes precise_schedule to this dialect's affine_range."""
    before = f"for i in {call}: w = nl.copy(t)"
    assert np.array_equal(evaluate(kernel_text, "nl.copy(t)", before=before), X)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            "nl.affine_range(4, unroll=2)",
            r"affine_range\(\) got an unexpected keyword argument 'unroll'",
        ),
        ("nl.sequential_range()", r"sequential_range\(\) missing a required argument: 'start'"),
        ("nl.static_range(1, 2, 3, 4)", r"static_range\(\) too many positional arguments"),
        ("nl.add(t)", r"add\(\) missing a required argument: 'y'"),
        ("nl.var(t, 1, keepdims=True)", r"var\(x, axis, \*, dtype=None, mask=None\)"),  # obs
    ],
)
def test_a_call_that_does_not_fit_is_told_by_its_public_name(kernel_text, call, said):
    with pytest.raises(KernelError, match=said):
        kernel_text(KERNEL.format(call="nl.copy(t)", before=call)).trace(X, Y, C)


def test_this_package_has_no_trn3(kernel_text):
    """SDK 2.29: trn3 came with the package nki; neuronxcc.nki knows trn1 and trn2."""
    text = kernel_text(KERNEL.format(call="nl.copy(t)", before="pass"))
    with pytest.raises(
        KernelError, match=r"neuronxcc.nki does not compile for trn3.*translate --to nki"
    ):
        text.trace(X, Y, C, target="trn3")
    text.trace(X, Y, C, target="trn2")


@pytest.mark.parametrize(
    "line",
    ["nl.rand((128, 0))", "nl.load(x[:, nl.ds(0, 0)])", "nl.load(x[nl.mgrid[0:0, 0:4]])"],
)
def test_a_tile_without_elements_is_told_as_one(kernel_text, line):
    """The assumption of `test_dialects`, of what a kernel makes itself."""
    with pytest.raises(KernelError, match=r"of shape .* has a dimension without elements"):
        kernel_text(KERNEL.format(call="nl.copy(t)", before=line)).trace(X, Y, C)


@pytest.mark.parametrize("name", ["logical_shift_right", "logical_right_shift"])
def test_names_that_are_not_there_have_near_ones(name):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'; it has right_shift$"):
        getattr(language, name)
