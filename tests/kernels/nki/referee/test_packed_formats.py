"""A kernel in microscaling formats against a reference that quantizes: what the tolerance rests on.

The same groups give the same scales and elements, so an honest product differs from its reference by
the rounding of float32 sums, and nothing is allowed for the elements' few bits."""

import pytest
from kernel_heads import nki_kernel, nki_of
from warm import verdict

from accelopt.errors import ConfigError
from accelopt.evaluation import Scrutiny, Status
from accelopt.kernels.nki.referee.precision import Precision, formats_of

REFERENCE = """
import ml_dtypes
import numpy as np

{precision}

def get_inputs():
    return [np.random.randn(128, 4 * n).astype(ml_dtypes.bfloat16) for n in (64, 96)]

def scaled(x):
    groups = x.reshape(16, 8, -1, 4)
    _, exponent = np.frexp(np.abs(groups).max(axis=(1, 3), keepdims=True))
    exponent = np.where(groups.any(axis=(1, 3), keepdims=True), np.maximum(exponent - 8, -127), -127)
    return np.ldexp(groups, -exponent), exponent

def quantized(x):
    groups, exponent = scaled(x)
    elements = groups.astype(ml_dtypes.float8_e4m3fn).astype(x.dtype)
    return np.ldexp(elements, exponent).reshape(128, -1, 4)

def forward(a, b):
    return np.einsum("kiq,kjq->ij", quantized(a), quantized(b))
"""

KERNEL = nki_of("a, b", shape="(64, 96)", dtype="nl.{dtype}")("""
def packed(x):
    partitions, width = x.shape[0], x.shape[1] // 4
    elements = nl.ndarray((partitions, width), dtype=nl.float8_{form}_x4, buffer=nl.sbuf)
    scales = nl.ndarray((partitions, width), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.quantize_mx(dst=elements, src=nl.load(x), dst_scale=scales)
    return elements, scales
left, left_scales = packed(a)
right, right_scales = packed(b)
product = nl.ndarray((64, 96), dtype=nl.{dtype}, buffer=nl.psum)
nisa.nc_matmul_mx(product, left, right, {scales})
nisa.dma_copy(dst=out, src=nl.copy(product))
""")
QUANTIZED_ON_THE_HOST = """
def get_inputs():
    return [np.random.randn(128, 4 * n).astype(np.float32) for n in (64, 96)]

def transform_to_nki_inputs(inputs):
    return [part for x in inputs for part in packed(x)]

def packed(x):
    groups, exponent = scaled(x)
    words = groups.reshape(128, -1).astype(ml_dtypes.float8_e4m3fn).view(np.uint32)
    scales = np.zeros((128, words.shape[1]), np.uint8)
    for group in range(16):
        scales[32 * (group // 4) + group % 4] = exponent[group, 0, :, 0] + 127
    return words, scales
"""

PACKED_KERNEL = nki_of("a, a_scale, b, b_scale", shape="(64, 96)", dtype="nl.float32")("""
left, right = nl.load(a.view(nl.float8_e4m3fn_x4)), nl.load(b.view(nl.float8_e4m3fn_x4))
scales, others = nl.load(a_scale), nl.load(b_scale)
product = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
nisa.nc_matmul_mx(product, left{rows}, right{rows}, scales, others)
nisa.dma_copy(dst=out, src=nl.copy(product))
""")
SCALES = "left_scales, right_scales"


@pytest.fixture
def judged(tmp_path):
    def run(form="e4m3fn", dtype="float32", scales=SCALES, scrutiny="full",
            precision='precision = "float8_e4m3fn_x4"', kernel=None, reference=None):  # fmt: skip
        kernel = kernel or KERNEL.format(form=form, dtype=dtype, scales=scales)
        reference = reference or REFERENCE.format(precision=precision)
        return verdict(tmp_path, kernel, reference, scrutiny=Scrutiny(scrutiny), target="trn3")

    return run


def test_an_honest_product_passes_a_reference_that_quantizes(judged):
    found = judged()
    assert found.status is Status.CORRECT, found.message
    [error, *_] = [c.amount for c in found.checks if c.name == "relative L2 error"]
    assert error < 2e-6


@pytest.mark.parametrize(
    "given",
    [
        {"form": "e5m2"},  # fewer bits than the reference's
        {"scales": "left_scales, right_scales[:, 0:1].broadcast(1, 96)"},
    ],
)
def test_other_elements_or_scales_do_not(judged, given):
    found = judged(**given, scrutiny="quick")
    assert found.status is not Status.CORRECT


def test_a_reference_that_allows_no_packed_format_gets_none(judged):
    found = judged(precision="", scrutiny="quick")
    assert found.status is Status.REFUSED
    assert "float8_e4m3fn_x4" in found.message


def test_packed_formats_are_allowed_by_name_and_widen_nothing():
    allowed = Precision(formats_of("float8_e4m3fn_x4"))
    assert allowed.allows("float8_e4m3fn_x4") and allowed.allows("float8_e8m0fnu")
    assert not allowed.allows("float8_e5m2_x4") and not allowed.allows("bfloat16")
    assert allowed.rel_tol(2e-5) == 2e-5 and allowed.unit == Precision().unit
    with pytest.raises(ConfigError, match="float4_e2m1fn_x4"):
        formats_of("mxfp4")


def test_operands_quantized_on_the_host_leave_nothing_but_float32_rounding(judged):
    """The reference rounds, and its transform packs what it rounds: the bound is the published 2e-5."""
    reference = REFERENCE.format(precision='precision = "float8_e4m3fn_x4"')
    reference += QUANTIZED_ON_THE_HOST
    found = judged(kernel=PACKED_KERNEL.format(rows=""), reference=reference)
    assert found.status is Status.CORRECT, found.message
    assert {c.limit for c in found.checks if c.name == "relative L2 error"} == {2e-5}
    wrong = PACKED_KERNEL.format(rows="[0:96]")  # without the last quadrant
    found = judged(kernel=wrong, reference=reference, scrutiny="quick")
    assert found.status is Status.WRONG_NUMBERS


ROUNDED = """
import ml_dtypes
import numpy as np

def get_inputs():
    return [np.random.randn(128, 64).astype(np.float32)]

def forward(x):
    return (x * 2).astype(ml_dtypes.float8_e4m3), x + 1
"""
ROUNDS = nki_kernel("""def kernel(x):
    small = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(small, nl.multiply(tile, 2.0, dtype=nl.float8_e4m3))
    nl.store(out, nl.add(nl.{through}, 1.0))
    return small, out
""")


@pytest.mark.parametrize(
    "through, status",
    [("copy(tile)", Status.CORRECT), ("copy(tile, dtype=nl.float8_e4m3)", Status.WRONG_NUMBERS)],
)
def test_the_format_of_a_result_is_allowed_and_allows_no_error_elsewhere(through, status, judged):
    """The contract names it; what else passes through it is as wrong as its bits are few."""
    found = judged(kernel=ROUNDS.format(through=through), reference=ROUNDED)
    assert found.status is status, found.message
