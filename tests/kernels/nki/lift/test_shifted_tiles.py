"""What a kernel stores in a tile and reads at several places of it is a definition, where that is less work.

Evidence: the simulated core computes what the Algorithm does, and so do kernels by the first nests of it; kernel and
reference are the same in real numbers as before.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_heads import nki_kernel, nki_of
from lifted_text import check_nests, lifted, traced

from accelopt.algorithm.element_work import element_work
from accelopt.algorithm.equality import same_function
from accelopt.algorithm.ir import arrays_read
from accelopt.kernels.nki.lift.lifting import lift

HEAD = """def kernel(x):
    out = nl.ndarray({shape}, dtype=x.dtype, buffer=nl.shared_hbm)
    for p in nl.affine_range({parts}):
        t0 = nl.load(x[p * 64:p * 64 + 64])
"""
PASS = """        t{n} = nl.ndarray((64, {h}, {w}), dtype={dtype}, buffer=nl.sbuf)
        t{n}[...] = nl.multiply({place}, {first})
        for k in nl.static_range(1, {taps}):
            t{n}[...] = nl.add(t{n}, nl.multiply({shifted}, {weights}[k]))
"""
FUNCTIONS = ("", "nl.square", "nl.exp", "nl.abs")

passes = st.lists(
    st.tuples(st.booleans(), st.integers(2, 5), st.sampled_from(FUNCTIONS)), min_size=2, max_size=3
)


def chain(plan: list[tuple[bool, int, str]], h: int, w: int, parts: int, dtype: str) -> str:
    """Filters along rows or columns of planes, one of what the one before left in a tile."""
    lines = []
    for n, (down, taps, function) in enumerate(plan, start=1):
        h, w = (h - taps + 1, w) if down else (h, w - taps + 1)
        weights = [round(0.5 / (k + 1 + n), 3) for k in range(taps)]
        place = f"t{n - 1}[:, {{k}}:{h}{{more}}, 0:{w}]" if down else f"t{n - 1}[:, 0:{h}, {{k}}:{w}{{more}}]"  # fmt: skip
        given = {"h": h, "w": w, "taps": taps, "weights": weights, "first": weights[0], "n": n}
        given["place"] = place.format(k=0, more="")
        given["shifted"] = place.format(k="k", more=" + k")
        lines.append(PASS.format(dtype=dtype, **given))
        if function:
            lines.append(f"        t{n}[...] = {function}(t{n})\n")
    head = HEAD.format(shape=(parts * 64, h, w), parts=parts)
    store = f"        nl.store(out[p * 64:p * 64 + 64], t{len(plan)})\n    return out\n"
    return nki_kernel("".join([head, *lines, store]))


@given(passes, st.integers(11, 17), st.integers(11, 16), st.sampled_from((1, 2)))
@settings(max_examples=6, deadline=None)
def test_filters_of_filters(plan: list[tuple[bool, int, str]], h: int, w: int, parts: int) -> None:
    x = np.random.default_rng(h).normal(size=(parts * 64, h, w)).astype(np.float32)
    text = chain(plan, h, w, parts, "nl.float32")
    one = lifted(text, [x])
    np.testing.assert_allclose(one.found, one.expected, rtol=1e-4, atol=1e-5)
    check_nests(one, [x], 1e-3)
    plain = lift(traced(text, [x]), strict=True)
    assert same_function(plain, one.algorithm)
    assert element_work(one.algorithm) <= element_work(plain)


@pytest.mark.parametrize("dtype", ["nl.float32", "nl.bfloat16"])
def test_each_pass_of_a_blur_is_a_definition(dtype: str) -> None:
    """Written into each other, the passes are one sum of 25."""
    x = np.random.default_rng(1).normal(size=(128, 21, 19)).astype(np.float32)
    one = lifted(chain([(False, 5, ""), (True, 5, "")], 21, 19, 2, dtype), [x])
    assert [tuple(a.extent for a in d.axes) for d in one.algorithm.definitions] == [
        (128, 21, 15), (128, 17, 15)
    ]  # fmt: skip
    np.testing.assert_allclose(one.found, one.expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("taps", "own"), [(3, 2), (2, 1)])
def test_windows_in_loops_that_overlap_read_a_definition(taps: int, own: int) -> None:
    """Every second window of three shares elements with the next, of two it does not."""
    text = nki_of("x", shape="(128, 31)")(f"""
tile, best = nl.tanh(nl.square(nl.tanh(nl.load(x)))), nl.zeros((128, 31), dtype=nl.float32)
for k in range({taps}):
    nisa.tensor_tensor(dst=best, data1=best, data2=tile[:, k:k + 61:2], op=nl.maximum)
nl.store(out, best)
""")
    x = np.random.default_rng(4).normal(size=(128, 64)).astype(np.float32)
    one = lifted(text, [x])
    names = {read for d in one.algorithm.definitions for read in arrays_read(d)}
    assert len(names - {"x", "largest"}) == own - 1
    check_nests(one, [x], 1e-3)


def test_what_is_read_once_is_no_definition() -> None:
    """Halves of a tile are no shifted reads, and a tile that is read at one place is computed there."""
    text = nki_of("x", shape="(128, 64)")("""
tile = nl.exp(nl.load(x))
low, high = tile[:, 0:64], tile[:, 64:128]
nl.store(out, nl.add(nl.multiply(low, 2.0), high))
""")
    x = np.random.default_rng(1).normal(size=(128, 128)).astype(np.float32)
    assert len(lifted(text, [x]).algorithm.definitions) == 1
