"""Python's own loops: kept as loops where that is the same, run as they are written where not."""

import numpy as np
import pytest
from kernel_lines import writing_of

from accelopt.sim.program import Loop

A = np.random.default_rng(0).standard_normal((512, 64)).astype(np.float32)

KERNEL = writing_of("a")("""
{before}
for i in {loop}:
    t = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a[{rows}, :])
    {body}
    nisa.dma_copy(dst=out[{rows}, :], src=t)
""")


def text(loop="range(4)", rows="i * 128 : (i + 1) * 128", body="pass", before="pass"):
    return KERNEL.format(loop=loop, rows=rows, body=body, before=before)


def loops(program):
    return [node for node in program.body if isinstance(node, Loop)]


@pytest.mark.parametrize(
    "loop", ["range(4)", "nl.affine_range(4)", "nl.sequential_range(4)", "nl.static_range(0, 4, 1)"]
)
def test_a_loop_whose_index_stands_in_addresses_stays_a_loop(nki_text, loop):
    """Language guide: every range is Python's; a loop of the Program says the same, shorter."""
    kernel = nki_text(text(loop))
    program = kernel.trace(A)
    assert [one.variable.trips for one in loops(program)] == [4]
    assert np.array_equal(kernel.run(A), A)


@pytest.mark.parametrize(
    ("before", "body", "factor"),
    [
        ("count = 0", "count += 1", "count"),
        ("seen = []", "seen.append(i)", "len(seen)"),
        ("pass", "pass", "float(i + 1)"),
        ("pass", "pass", "[1, 2, 3, 4][i]"),
        ("pass", "k = 1 if i == 0 else i + 1", "k"),
        ("scale = {}", "scale[i] = i + 1", "scale[i]"),
    ],
)
def test_python_sees_every_iteration(nki_text, before, body, factor):
    """Migration guide 0.1 to 0.2: `val += 1` in a loop of eight ends at eight, not at one."""
    body = f"{body}; nisa.tensor_scalar(t, t, nl.multiply, {factor})"
    kernel = nki_text(text(before=before, body=body))
    assert loops(kernel.trace(A)) == []
    wanted = A * np.repeat([1, 2, 3, 4], 128)[:, None]
    np.testing.assert_allclose(kernel.run(A), wanted, rtol=1e-6)


def test_slices_may_end_at_min(nki_text):
    """Migration guide, "Deprecation of masking": slices end at min() of the tensor's size."""
    kernel = nki_text.writing("""
        rows = a.shape[0]
        for i in range((rows + 127) // 128):
            p = slice(i * 128, min(rows, i * 128 + 128))
            t = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
            count = p.stop - p.start
            nisa.dma_copy(dst=t[0:count, :], src=a[p, :])
            nisa.dma_copy(dst=out[p, :], src=t[0:count, :])
        """)
    assert np.array_equal(kernel.run(A[:300]), A[:300])
    assert loops(kernel.trace(A[:256]))  # every slice is whole: the loop stays one


@pytest.mark.parametrize("how", ["break", "return out"])
def test_a_loop_may_be_left_early(nki_text, how):
    body = f"nisa.memset(t, 0.0)\n        if i == 2: {how}"
    kernel = nki_text(text(before="nisa.dma_copy(dst=out, src=a)", body=body))
    result = kernel.run(A)
    assert np.array_equal(result[256:], A[256:]) and not result[:256].any()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("t = nl.add(t, nl.load(a[i * 128 : (i + 1) * 128, :]))", A.reshape(4, 128, 64).sum(0)),
        ("t = nl.load(a[i * 128 : (i + 1) * 128, :])", A[384:]),
    ],
)
def test_a_tile_of_one_iteration_is_there_in_the_next_and_after_the_loop(nki_text, line, expected):
    kernel = nki_text.of(shape="(128, 64)")(f"""
        t = nl.zeros((128, 64), dtype=a.dtype)
        for i in range(4):
            {line}
        nl.store(out, t)
        """)
    np.testing.assert_allclose(kernel.run(A), expected, rtol=1e-5)


def test_a_tile_that_may_be_none_is_asked_for(nki_text):
    """The vendor's mlp_tkg_constants.py: `if params.expert_params and params.expert_params.index`."""
    kernel = nki_text("""
        class Parts:
            def __init__(self, bias):
                self.bias = bias

        def shifted(t, bias=None, scale=None):
            if not bias or scale:
                return t
            nisa.tensor_tensor(t, t, bias, nl.add)
            return t

        @nki.jit
        def kernel(a):
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            t = nl.load(a)
            parts = Parts(nl.load(a))
            if parts and parts.bias:
                shifted(shifted(t), parts.bias)
            nl.store(out, t)
            return out
        """)
    assert np.array_equal(kernel.run(A[:128]), A[:128] * 2)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("if t: pass", "truth value"),
        ("if nl.max(t, 1): pass", "truth value"),
        ("if t and a: pass", "truth value"),
        ("range(2.5)", "integer"),
        ("while t: pass", "condition of a while loop"),
    ],
)
def test_control_flow_on_a_tile_is_refused(nki_text, condition, said):
    """Language guide: conditions are evaluated when the kernel is specialised."""
    kernel = nki_text(text(body=condition))
    with pytest.raises(Exception, match=said):
        kernel.trace(A)


def test_an_nki_object_has_the_fields_of_its_class(nki_text):
    """The compiler reads the class: fields that are not annotated, and those a call leaves out (the
    vendor's library has both, under @dataclass)."""
    kernel = nki_text("""
        from dataclasses import dataclass

        @dataclass
        class Sizes(nl.NKIObject):
            rows: int
            unused: int
            factor = None

        @nki.jit
        def kernel(a, bias=None):
            sizes = Sizes(rows=128, factor=2.0)
            out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
            tile = nl.load(a[0 : sizes.rows])
            factor = sizes.factor if a and not bias and sizes.unused is None else 0.0
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
            nl.store(out, tile)
            return out
        """)
    assert np.array_equal(kernel.run(A[:128]), 2 * A[:128])
