"""Microscaling formats, against the documentation written down once more, element by element.

Evidence: SDK 2.32 `nisa.quantize_mx` ("Scale calculation"), `nisa.nc_matmul_mx`, the tables of scales
in `nki/deep-dives/mxfp-matmul.rst`, and OCP Microscaling Formats 1.0 for what bits mean.
"""

import ml_dtypes
import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.hardware import TRN3
from accelopt.sim.dialects.dialect import trace_kernel
from accelopt.sim.dtypes import FORMATS
from accelopt.sim.errors import KernelError
from accelopt.sim.serial.reading import loads
from accelopt.sim.serial.writing import dumps
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.profile import profile
from accelopt.sim.timing.stream.operation import Operation, Queue

BF16 = ml_dtypes.bfloat16
E4M3, E5M2, E2M1 = "float8_e4m3fn_x4", "float8_e5m2_x4", "float4_e2m1fn_x4"
BITS = {E4M3: (4, 3, 7), E5M2: (5, 2, 15), E2M1: (2, 1, 1)}
"""Bits of exponent and mantissa, and bias."""


def decoded(code, form):
    """The number that the bits of one element mean."""
    exponent_bits, mantissa_bits, bias = BITS[form]
    sign = -1.0 if code >> (exponent_bits + mantissa_bits) else 1.0
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias)
    return sign * (1 + mantissa) * 2.0 ** (exponent - bias)


def finite_codes(form):
    """Every finite element, as (number, code)."""
    total = sum(BITS[form][:2]) + 1
    largest = {E4M3: 448.0, E5M2: 57344.0, E2M1: 6.0}[form]
    pairs = [(decoded(code, form), code) for code in range(1 << total)]
    return [(number, code) for number, code in pairs if abs(number) <= largest]


def codes_of(raw, form):
    """(P, n) packed elements, as bytes, to (P, n, 4) codes: the first in the lowest bits."""
    width = 4 if form == E2M1 else 8
    words = raw.view(np.uint16 if form == E2M1 else np.uint32).astype(np.int64)
    return np.stack([words >> (width * n) & ((1 << width) - 1) for n in range(4)], axis=-1)


def numbers_of(raw, form):
    table = np.array([decoded(code, form) for code in range(16 if form == E2M1 else 256)])
    return table[codes_of(raw, form)]


def scale_row(partition):
    """Where the scale of a partition's group lies."""
    return 32 * (partition // 32) + partition % 32 // 8


def product_of(left, right, left_form, right_form, left_scale, right_scale):
    """What nc_matmul_mx is documented to compute, in float64."""
    sides = []
    for raw, form, scale in ((left, left_form, left_scale), (right, right_form, right_scale)):
        rows = [scale_row(p) for p in range(len(raw))]
        factors = 2.0 ** (scale[rows].astype(np.float64) - 127)
        sides.append(numbers_of(raw, form) * factors[..., None])
    return np.einsum("kiq,kjq->ij", *sides)


def drawn_codes(generator, form, partitions, columns):
    """Random finite packed elements as the bytes that a host would send."""
    codes = np.array([code for _, code in finite_codes(form)])
    chosen = generator.choice(codes, (partitions, columns, 4)).astype(np.uint32)
    if form == E2M1:
        words = sum(chosen[..., n] << (4 * n) for n in range(4)).astype(np.uint16)
        return words
    return sum(chosen[..., n] << (8 * n) for n in range(4)).astype(np.uint32)


QUANTIZE = """
@nki.jit
def kernel(a):
    p, f = a.shape
    t = nl.ndarray((p, f), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a)
    q = nl.ndarray((p, f // 4), dtype=nl.{form}, buffer=nl.sbuf)
    s = nl.ndarray(({rows}, f // 4), dtype=nl.{scale}, buffer=nl.sbuf)
    {fill}
    nisa.quantize_mx(dst=q, src=t, dst_scale=s)
    out = nl.ndarray((p, f // 4), dtype=nl.{form}, buffer=nl.shared_hbm)
    scales = nl.ndarray(({rows}, f // 4), dtype=nl.{scale}, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=q)
    nisa.dma_copy(dst=scales, src=s)
    return out, scales
"""


def quantize_text(form, rows="p", scale="uint8"):
    fill = "nisa.memset(dst=s, value=9)" if scale == "uint8" else ""
    return QUANTIZE.format(form=form, rows=rows, scale=scale, fill=fill)


@pytest.mark.parametrize("form", [E4M3, E5M2])
@pytest.mark.parametrize(("partitions", "rows"), [(128, "p"), (64, "p"), (32, "p // 8"), (32, "p")])
@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_quantizing_takes_the_documented_scale_and_the_nearest_element(
    nki_text, form, partitions, rows, dtype
):
    generator = np.random.default_rng(3)
    spread = np.exp2(generator.integers(-12, 12, (partitions, 6)).repeat(4, axis=1))
    a = (generator.standard_normal((partitions, 24)) * spread).astype(dtype)
    a[:8, :4] = 0
    raw, scales = nki_text(quantize_text(form, rows)).run(a, target="trn3")
    table = sorted(finite_codes(form))
    numbers = numbers_of(raw, form)
    greatest = {E4M3: 8, E5M2: 15}[form]
    for group in range(partitions // 8):
        for column in range(6):
            own = a[8 * group : 8 * group + 8, 4 * column : 4 * column + 4].astype(np.float64)
            largest = np.abs(own).max()
            exponent = np.floor(np.log2(largest)) - (greatest - 1) if largest else -127
            assert scales[scale_row(8 * group), column] == exponent + 127
            wanted = own / 2.0**exponent
            found = numbers[8 * group : 8 * group + 8, column]
            near = [min(abs(number - w) for number, _ in table) for w in wanted.ravel()]
            np.testing.assert_array_equal(np.abs(found - wanted).ravel(), near)
    kept = np.ones(len(scales), bool)
    kept[[scale_row(p) for p in range(partitions)]] = False
    assert (scales[kept] == 9).all(), "quantize_mx wrote partitions that hold no scales"


def test_ties_go_to_the_even_element_and_nothing_saturates(nki_text):
    """With a scale twice the OCP's, 1.9375 * 2^k rounds up to 2 instead of down to 1.875."""
    a = np.zeros((32, 4), BF16)
    a[0] = [1.9375, 1.0625, 1.1875, -1.9375]
    raw, scales = nki_text(quantize_text(E4M3)).run(a, target="trn3")
    factor = 2.0 ** (int(scales[0, 0]) - 127)
    np.testing.assert_array_equal(numbers_of(raw, E4M3)[0, 0] * factor, [2.0, 1.0, 1.25, -2.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_group_without_a_largest_number_is_no_number(nki_text, bad):
    """Assumption: the documentation says nothing."""
    a = np.ones((32, 8), BF16)
    a[3, 1] = bad
    _, scales = nki_text(quantize_text(E5M2, scale="float8_e8m0fnu")).run(a, target="trn3")
    assert np.isnan(scales[0, 0].astype(np.float32)) and scales[0, 1].astype(np.float32) == 2.0**-14


MATMUL = writing_of("a, b, a_scale, b_scale", shape="(a.shape[1], b.shape[1])", dtype="nl.{dtype}")("""
left, right = nl.load(a.view(nl.{left})), nl.load(b.view(nl.{right}))
s = nl.ndarray((128, a.shape[1]), dtype=nl.uint8, buffer=nl.sbuf)
t = nl.ndarray((128, b.shape[1]), dtype=nl.uint8, buffer=nl.sbuf)
nisa.dma_copy(dst=s[0:a_scale.shape[0]], src=a_scale)
nisa.dma_copy(dst=t[0:b_scale.shape[0]], src=b_scale)
product = nl.ndarray(out.shape, dtype=nl.{dtype}, buffer=nl.psum)
{lines}
nisa.dma_copy(dst=out, src=nl.copy(product))
""")
ONCE = "nisa.nc_matmul_mx(product, left, right, s, t)"


def matmul_text(left, right, dtype="float32", lines=ONCE):
    return MATMUL.format(left=left, right=right, dtype=dtype, lines=lines)


def drawn(left, right, partitions=128, m=16, n=24, seed=0):
    generator = np.random.default_rng(seed)
    scales = [generator.integers(110, 130, (partitions, x)).astype(np.uint8) for x in (m, n)]
    return (
        drawn_codes(generator, left, partitions, m),
        drawn_codes(generator, right, partitions, n),
        *scales,
    )


@pytest.mark.parametrize("left", [E4M3, E5M2, E2M1])
@pytest.mark.parametrize("right", [E4M3, E5M2, E2M1])
@pytest.mark.parametrize("partitions", [32, 128])
def test_a_product_of_packed_elements(nki_text, left, right, partitions):
    arguments = drawn(left, right, partitions)
    result = nki_text(matmul_text(left, right)).run(*arguments, target="trn3")
    wanted = product_of(arguments[0], arguments[1], left, right, *arguments[2:])
    np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


def test_products_add_up_and_may_be_bfloat16(nki_text):
    arguments = drawn(E4M3, E5M2)
    twice = f"{ONCE}\n    {ONCE}"
    wanted = 2 * product_of(arguments[0], arguments[1], E4M3, E5M2, *arguments[2:])
    result = nki_text(matmul_text(E4M3, E5M2, lines=twice)).run(*arguments, target="trn3")
    np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
    narrow = nki_text(matmul_text(E4M3, E5M2, "bfloat16")).run(*arguments, target="trn3")
    np.testing.assert_allclose(narrow.astype(float), wanted / 2, rtol=2**-8, atol=1e-5)


def test_scales_of_two_tensors_share_a_tile(nki_text):
    """mxfp-matmul.rst, "Packing Scale Values": offsets 0, 4, 8, 12; each write leaves the others."""
    text = writing_of("a, b", shape="(8, 16)", dtype="nl.float32")("""
        s = nl.ndarray((128, 16), dtype=nl.uint8, buffer=nl.sbuf)
        left = nl.ndarray((128, 8), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        right = nl.ndarray((128, 16), dtype=nl.float8_e5m2_x4, buffer=nl.sbuf)
        nisa.quantize_mx(dst=left, src=nl.load(a), dst_scale=s[{first}:, :8])
        nisa.quantize_mx(dst=right, src=nl.load(b), dst_scale=s[{second}:, :])
        product = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(product, left, right, s[{first}:, :8], s[{second}:, :])
        nisa.dma_copy(dst=out, src=nl.copy(product))
        """)
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((128, 4 * w)).astype(BF16) for w in (8, 16))
    results = [
        nki_text(text.format(first=one, second=other)).run(a, b, target="trn3")
        for one, other in ((0, 4), (8, 12), (4, 0))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    exact = np.einsum("kiq,kjq->ij", *(x.astype(float).reshape(128, -1, 4) for x in (a, b)))
    assert np.linalg.norm(results[0] - exact) < 0.09 * np.linalg.norm(exact)  # 2^-3 / 3^.5
    with pytest.raises(KernelError, match="partition 2 of a quadrant"):
        nki_text(text.format(first=0, second=2)).trace(a, b, target="trn3")


REFUSED = {
    ("nisa.nc_matmul_mx(product, left, right, s[0:64], t)", "trn3"): "does not hold the scales",
    ("nisa.nc_matmul_mx(product, left, right, s[:, 0:8], t)", "trn3"): "does not hold the scales",
    ("nisa.nc_matmul_mx(product, left, right, s[1:], t)", "trn3"): "partition 1 of a quadrant",
    ("nisa.nc_matmul_mx(product, left[0:96], right, s, t)", "trn3"): "different numbers of part",
    ("nisa.nc_matmul_mx(product, left[0:48], right[0:48], s, t)", "trn3"): "no multiple of 32",
    ("nisa.nc_matmul_mx(product, left[32:64], right[32:64], s, t)", "trn3"): "starts in quadrant 0",
    ("nisa.nc_matmul_mx(product[0:15], left[:, 0:15], right, s[:, 0:15], t)", "trn3"): "odd number",
    ("nisa.nc_matmul_mx(product, left, s, s, t)", "trn3"): "operand 'moving' of nc_matmul_mx is uint8",
    ("nisa.nc_matmul_mx(c_sbuf, left, right, s, t)", "trn3"): "PSUM",
    ("nisa.nc_matmul_mx(product, left, right, s, t, (0, 32), (128, 32))", "trn3"): "row tiles only",
    ("nisa.nc_matmul_mx(product, left[0:64], right[0:64], s[0:64], t[0:64], (32, 0), (64, 128))", "trn3"): "multiple of tile",
    ("nisa.quantize_mx(left, left, s)", "trn3"): "Convert it to one of: float16, bfloat16",
    ("nisa.quantize_mx(left, c_sbuf, s)", "trn3"): "cannot|(128, 16)",
    ("nisa.memset(left, 1)", "trn3"): "memset of 1",
    ("nisa.tensor_scalar(left, left, nl.add, 1.0)", "trn3"): "packed elements are multiplied, copied",
    ("nisa.tensor_copy(dst=left, src=t[:, 0:16])", "trn3"): "packed elements are multiplied, copied",
    ("nisa.nc_matmul(product, left, right)", "trn3"): "float8_e4m3fn_x4",
    ("nisa.nc_matmul_mx(product, left, right, s, t)", "trn2"): "NeuronCore-v4 .trn3., and this .* trn2",
}  # fmt: skip


@pytest.mark.parametrize(("line", "target"), REFUSED)
def test_planted_errors_are_refused(nki_text, line, target):
    lines = f"c_sbuf = nl.ndarray((128, 24), nl.bfloat16, buffer=nl.sbuf)\n    {line}"
    text = matmul_text(E4M3, E4M3, lines=lines)
    with pytest.raises(KernelError, match=REFUSED[line, target]):
        nki_text(text).trace(*drawn(E4M3, E4M3), target=target)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("line", [
    "nl.ndarray((128, 4), nl.float8_e4m3fn_x4)", "t.view(nl.float8_e5m2_x4)",
    "t.ap([[64, 128], [1, 4]], dtype=nl.float4_e2m1fn_x4)", "nisa.quantize_mx(t, t, t)",
    "nisa.nc_matmul_mx(t, t, t, t, t)",
])  # fmt: skip
def test_older_generations_refuse_by_name(nki_text, target, line):
    text = f"@nki.jit\ndef kernel(a):\n    t = nl.load(a)\n    {line}\n    return a\n"
    with pytest.raises(KernelError, match=f"trn3.*{target}.*--target trn3"):
        nki_text(text).trace(np.zeros((128, 64), np.float32), target=target)


def test_an_older_generation_is_told_of_all_that_it_lacks(nki_text):
    found = []
    trace_kernel(
        nki_text(matmul_text(E4M3, E4M3)).kernel,
        drawn(E4M3, E4M3),
        target="trn2",
        report=found.append,
    )
    assert {error.identifier for error in found} == {"microscaling"}
    assert "nisa.nc_matmul_mx needs NeuronCore-v4" in str(found[-1])


def test_scales_that_nobody_wrote_are_refused(nki_text):
    text = matmul_text(E4M3, E4M3)
    text = text.replace("nisa.dma_copy(dst=t[0:b_scale.shape[0]], src=b_scale)", "")
    with pytest.raises(KernelError, match="read before anything is written"):
        nki_text(text).trace(*drawn(E4M3, E4M3), target="trn3")


def test_a_program_travels_as_data(nki_text):
    program = nki_text(matmul_text(E4M3, E2M1)).trace(*drawn(E4M3, E2M1), target="trn3")
    again = loads(dumps(program))
    formats = {access.dtype for _, i in again.walk() for access in i.inputs.values()}
    assert {FORMATS[E4M3], FORMATS[E2M1]} <= formats


def priced(program, opcode, queue):
    """The price of the first instruction with an opcode."""
    found = next(i for _, i in program.walk() if i.opcode == opcode)
    reads = tuple(found.inputs[n] for n in ("data", "stationary", "moving") if n in found.inputs)
    operation = Operation(found.opcode, queue, reads, tuple(found.outputs.values()), found)
    return price(operation, TRN3)


def test_prices_are_those_of_the_documentation(nki_text):
    """trainium3_arch.rst: QuantizeMX takes four elements a cycle of 1.2 GHz; a product of packed
    elements moves its columns as one of bfloat16 does and multiplies four times as much."""
    assert TRN3.source("quantize_cycles_per_element").status == "documented"
    times = []
    for width in (2048, 4096):
        program = nki_text(quantize_text(E4M3)).trace(np.ones((128, width), BF16), target="trn3")
        assert profile(program).latency_ms > 0
        times.append(priced(program, "quantize_mx", Queue.VECTOR).issue_ns)
    assert times[1] - times[0] == pytest.approx(2048 / 4 / 1.2)
    plain = writing_of("a, b", shape="(16, 24)", dtype="nl.float32")("""
        product = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, nl.load(a), nl.load(b))
        nisa.dma_copy(dst=out, src=nl.copy(product))
        """)
    arrays = [np.ones((128, n), BF16) for n in (16, 24)]
    one = priced(nki_text(plain).trace(*arrays, target="trn3"), "matmul", Queue.TENSOR)
    packed = nki_text(matmul_text(E4M3, E4M3)).trace(*drawn(E4M3, E4M3), target="trn3")
    four = priced(packed, "matmul", Queue.TENSOR)
    assert (four.issue_ns, four.true_flops) == (one.issue_ns, 4 * one.true_flops)


def test_memory_counts_the_bytes_of_packed_elements(nki_text):
    """mxfp-matmul.rst: four bytes for 8-bit elements, two for 4-bit ones."""
    assert [FORMATS[form].itemsize for form in (E4M3, E5M2, E2M1)] == [4, 4, 2]
    text = """
        @nki.jit
        def kernel(a):
            t = nl.ndarray((128, {width}), dtype=nl.{form}, buffer=nl.sbuf, address=(0, 0))
            nisa.dma_copy(dst=a, src=nl.load(a))
            return a
        """
    for form, fits in ((E4M3, 61440), (E2M1, 122880)):
        nki_text(text.format(form=form, width=fits)).trace(np.ones((128, 4), BF16), target="trn3")
        with pytest.raises(KernelError, match="245760"):
            over = text.format(form=form, width=fits + 1)
            nki_text(over).trace(np.ones((128, 4), BF16), target="trn3")
