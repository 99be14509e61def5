"""Triton that is written from an Algorithm computes what the Algorithm says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accelopt.algorithm import ir
from accelopt.algorithm.index import Axis, index_of
from accelopt.hardware.gpus import H100
from accelopt.kernels.triton.emission.groups import Group, arrays_of, member_of
from accelopt.kernels.triton.emission.module_text import groups_of, kernels_text, prepared
from accelopt.kernels.triton.emission.planning import plans
from accelopt.kernels.triton.emission.prices import price
from accelopt.kernels.triton.emission.rounding import rounded
from accelopt.kernels.triton.emission.schedule import Kernel, NotEmitted, Schedule, Split, Tile
from accelopt.kernels.triton.emission.solutions import beside, candidates
from accelopt.kernels.triton.emission.tiles import Tiles
from accelopt.kernels.triton.lift.confined import lift_kernel
from accelopt.kernels.triton.lift.lifting import Like, lift_launches
from tests.algorithm.evaluation import evaluate
from tests.kernels.nki.lift.algorithms import read, written
from tests.kernels.triton.lift.test_confined import scaled_rows
from tests.kernels.triton.lift.test_lifting import CASES as LIFTED
from tests.kernels.triton.lift.test_lifting import KERNELS, _f, interpreted, needs_interpreter

SAME = ("softmax", "running_softmax", "cross_entropy", "recurrence", "column_sums", "segment_sums",
        "causal_convolution", "by_sequence", "by_assigned_rows", "by_repeated_rows")  # fmt: skip
CASES = {
    **{name: LIFTED[name][0] for name in SAME},
    "matmul": LIFTED["matmul with a last group of one tile"][0],
    "matmul described": [_f(80, 64), _f(64, 48)],
    "attention": LIFTED["attention"][0],
    "attention causal": [_f(3, 128, 16), _f(3, 128, 16), _f(3, 128, 16), True],
    "turned_pairs": [_f(40, 16), _f(8, 2)],
    "ragged prefill": [
        _f(71, 4, 16), _f(81, 2, 16), _f(81, 2, 16),
        np.array([0, 5, 5, 70, 71], np.int32), np.array([0, 9, 9, 80, 81], np.int32), 0.25,
    ],
}  # fmt: skip
STARTERS = Path(__file__).parents[4] / "experiments" / "flb_optimize" / "starter_trace"


def source_of(algorithm, schedule):
    """A module with the kernels of a schedule alone."""
    names = [array.name for array in algorithm.inputs]
    start = f"def run({', '.join(names)}):\n    raise ValueError('made for other tensors')\n"
    return beside(start, "run", algorithm, kernels_text(algorithm, schedule), names, {})


def _lifted(name):
    if name == "ragged prefill":
        (file,) = STARTERS.glob("solutions/*/gqa_ragged/*/*.json")
        sources = {s["path"]: s["content"] for s in json.loads(file.read_text())["sources"]}
        given = [
            Like(g.shape, g.dtype.name) if isinstance(g, np.ndarray) else g for g in CASES[name]
        ]
        return lift_kernel(sources, "main.py::run", given).algorithm
    return lift_launches(KERNELS, name.split()[0], CASES[name]).algorithm


def _arrays(name):
    return [value for value in CASES[name] if isinstance(value, np.ndarray)]


def _values(algorithm, arrays):
    return evaluate(algorithm, dict(zip((a.name for a in algorithm.inputs), arrays, strict=True)))


def _tiles(**sizes):
    return tuple(Tile(axis=axis, size=size) for axis, size in sizes.items())


def _walked(algorithm, schedule):
    """The schedule with the longest reduced axis of each kernel walked, in parts of 16."""
    ready, kernels = prepared(algorithm, schedule.splits), []
    for group, kernel in zip(groups_of(ready, tuple(k.members for k in schedule.kernels)), schedule.kernels,
                             strict=True):  # fmt: skip
        scans = {m.definition.along for m in group.members if isinstance(m.definition, ir.Scan)}
        longest = max(group.reduced - scans, key=lambda a: a.extent, default=None)
        sizes = {a.name: kernel.size(a.name) for a in group.free}
        if longest is not None:
            sizes[longest.name] = 16
        name = "" if longest is None else longest.name
        kernels.append(kernel.model_copy(update={"tiles": _tiles(**sizes), "walked": name}))
    return schedule.model_copy(update={"kernels": tuple(kernels)})


def _schedules(algorithm):
    """Those of least price, each definition in a kernel of its own, and walked ones."""
    names = [d.out for d in prepared(algorithm).definitions]
    alone = Schedule(kernels=tuple(Kernel(members=(one,)) for one in names))
    found = [plan.schedule for plan in plans(algorithm, H100, 2)]
    return [*found, alone, _walked(algorithm, found[0])]


def _described(schedule):
    """The schedule whose kernels move tiles by descriptors where they can."""
    kernels = (kernel.model_copy(update={"descriptors": True}) for kernel in schedule.kernels)
    return schedule.model_copy(update={"kernels": tuple(kernels)})


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"ragged prefill", "by_sequence"}))
def test_what_is_written_is_traced_to_the_same_values(tmp_path, name):
    """Evidence: the tracer, whose meaning of Triton is compared with Triton's interpreter
    (test_lifting.py): what is written is lifted again. Tiles overhang axes. The tracer follows no loop that
    begins where another one ended, at the diagonal, and no store of several joined axes at places that are
    read."""
    algorithm = _lifted(name)
    wanted = _values(algorithm, _arrays(name))
    followed = _schedules(algorithm)[: 3 if name == "attention causal" else 4]
    followed.append(_described(followed[-1]))
    for number, schedule in enumerate(followed):
        file = tmp_path / f"written{number}.py"
        file.write_text(source_of(algorithm, schedule))
        again = lift_launches(file, "run", _arrays(name)).algorithm
        for one, other in zip(_values(again, _arrays(name)), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6, err_msg=str(schedule))


@needs_interpreter
def test_what_is_written_runs_in_the_interpreter(tmp_path):
    """Evidence: `TRITON_INTERPRET=1`, Triton's own meaning of its language."""
    wanted = {}
    for name in CASES:
        algorithm = _lifted(name)
        first, second, *_, walked = _schedules(algorithm)
        for number, schedule in enumerate([first, second, walked, _described(walked)]):
            own = f"{name.replace(' ', '_')}_{number}"
            text = source_of(algorithm, schedule).replace('"tf32"', '"ieee"')
            (tmp_path / f"{own}.py").write_text(text)
            np.savez(tmp_path / f"{own}.npz", *_arrays(name))
            wanted[own] = _values(algorithm, _arrays(name))
    interpreted(tmp_path, tmp_path, "importlib.import_module(file.stem).run")
    for own, values in wanted.items():
        found = np.load(tmp_path / f"{own}.out.npz")
        returned = found.files[: len(values)]  # behind them is what was changed
        for one, key in zip(values, returned, strict=True):
            np.testing.assert_allclose(found[key], one, rtol=1e-4, atol=1e-4)


def test_pairs_change_in_place_behind_the_loads_of_a_program():
    """A tile of whole pairs reads nothing that other programs write; one element alone is half a pair."""
    algorithm = _lifted("turned_pairs")
    names = tuple(d.out for d in prepared(algorithm).definitions)
    (free,) = groups_of(prepared(algorithm), (names,))[0].free
    kernels = (
        Kernel(members=names, tiles=_tiles(**{free.name: size}) if size > 1 else ())
        for size in (64, 1)
    )
    whole, half = (source_of(algorithm, Schedule(kernels=(k,))) for k in kernels)
    assert "copy_" not in whole and whole.index("debug_barrier") < whole.index("tl.store")
    assert "copy_" in half and "debug_barrier" not in half


def test_what_lies_beside_each_other_is_added_last():
    """A sum of everything reads rows of 4,096 as one, whichever axis the Algorithm names first."""
    algorithm = written(
        "total", {"r": 512, "c": 4096}, {"x": (512, 4096)}, "out = add[c, r](x[r, c])"
    )
    (definition,) = prepared(algorithm).definitions
    assert [axis.extent for axis in definition.reduced] == [512, 4096]


def test_descriptors_move_tiles_whose_rows_are_multiples_of_16_bytes():
    """Evidence: CUDA driver API, cuTensorMapEncodeTiled: strides are multiples of 16 bytes, a box has at most 256
    elements a side, and what lies outside is 0: the last rows' tile overhangs, the sum's would read its
    neighbours."""

    def text(name, **sizes):
        algorithm = _lifted(name)
        members = tuple(d.out for d in prepared(algorithm).definitions)
        kernel = Kernel(members=members, tiles=_tiles(**sizes), walked="k", descriptors=True)
        return source_of(algorithm, Schedule(kernels=(kernel,)))

    described = text("matmul described", m=32, n=16, k=16)
    assert (
        described.count("_tiles.load([") == 2 and "out_tiles.store([m_start, n_start]" in described
    )
    assert "from_tensor(a.view(80, 64), [32, 16])" in described
    assert "a_tiles" not in text("matmul", m=32, n=16, k=16)
    assert "b_tiles" not in text("matmul described", m=32, n=512, k=16)


def test_an_attention_is_one_kernel_that_ends_at_the_diagonal():
    """Evidence: online softmax (Milakov and Gimelshein 2018): sums are rescaled as the maximum grows, so
    scores, maximum, sum and product take one walk; keys behind the last query of a tile give nothing."""
    algorithm = _lifted("attention causal")
    best = plans(algorithm, H100, 1)[0].schedule
    assert [set(k.members) for k in best.kernels] == [
        {d.out for d in prepared(algorithm).definitions}
    ]
    walked = _schedules(algorithm)[-1]
    text = source_of(algorithm, walked)
    loops = [line for line in text.splitlines() if line.strip().startswith("for ")]
    assert len(loops) == 2 and "tl.minimum(128, " in loops[1]
    before = text[text.index(loops[0]) : text.index(loops[1])]
    assert "_finite" in before and ">= 0" not in before


@pytest.mark.slow
def test_rows_of_ragged_lengths_are_stored_where_the_lengths_say():
    """Evidence: programs without a row end, walks end at the last key that the tile's last row sees, and a row is
    stored at its sequence's start and its own place. The start's results are `torch.empty`: behind the last row
    they are undefined, where it had zeros they are 0."""
    algorithm = _lifted("ragged prefill")
    (best, *_) = plans(algorithm, H100, 1)
    assert len(best.schedule.kernels) == 1
    text = source_of(algorithm, best.schedule)
    assert text.count("return\n") == 1 and text.count("tl.store(") == 2
    assert "row_1 = qo_indptr_" in text and "torch.zeros(" not in text
    whole = replace(algorithm, outputs=tuple(replace(a, partial=False) for a in algorithm.outputs))
    assert source_of(whole, best.schedule).count("torch.zeros(") == 2


PAGED = """
import torch, triton, triton.language as tl

@triton.jit
def decode(q, p, keys, more, starts, pages, out, K: tl.constexpr):
    b, head, d, e = tl.program_id(0), tl.arange(0, 16), tl.arange(0, 64), tl.arange(0, 32)
    begin = tl.load(starts + b)
    length = tl.load(starts + b + 1) - begin
    one = tl.load(q + (b * 16 + head[:, None]) * 64 + d)
    two = tl.load(p + (b * 16 + head[:, None]) * 32 + e)
    total, added = tl.zeros((16,), tl.float32), tl.zeros((16, 64), tl.float32)
    for start in range(0, length, K):
        left = length - start
        inside = tl.arange(0, K) < tl.where(left < K, left, K)
        page = tl.load(pages + begin + start + tl.arange(0, K), mask=inside, other=0)
        key = tl.load(keys + page[:, None] * 64 + d, mask=inside[:, None], other=0.0)
        scores = tl.dot(one, tl.trans(key))
        scores += tl.dot(two, tl.trans(tl.load(more + page[:, None] * 32 + e, mask=inside[:, None], other=0.0)))
        weight = tl.where(inside[None, :], tl.exp(scores), 0.0)
        total += tl.sum(weight, 1)
        added += tl.dot(weight, key.to(tl.float32))
    tl.store(out + (b * 16 + head[:, None]) * 64 + d, (added / total[:, None]).to(tl.bfloat16))

def run(q, p, keys, more, starts, pages):
    out = torch.empty_like(q)
    decode[(q.shape[0],)](q, p, keys, more, starts, pages, out, K=128)
    return out
"""


def test_pages_of_one_key_are_looked_up_in_the_walk_and_shared_in_runs(tmp_path):
    """Two scores that one sum reads are in one kernel; a tile's mask by the least of what is left and its length
    is one of the length; weights are rounded to bfloat16; parts of a row have every fourth run of 128 keys."""
    (tmp_path / "paged.py").write_text(PAGED)
    shapes = [(64, 16, 64), (64, 16, 32), (9000, 64), (9000, 32)]
    given = [*(Like(shape, "bfloat16") for shape in shapes), Like((65,), "int32")]
    given.append(Like((65536,), "int32"))
    algorithm = rounded(lift_launches(tmp_path / "paged.py", "run", given).algorithm)
    (best, *_) = plans(algorithm, H100, 1)
    first = best.schedule.kernels[0].members
    assert len(first) == 4 and len({split.parts for split in best.schedule.splits}) == 1
    text = source_of(algorithm, best.schedule).partition("def kernel_1")[0]
    assert text.index("\n    for ") < text.index("keys_1 = tl.load(")
    assert ".to(tl.bfloat16), tl.trans(keys_1)" in text and ", 0) //" in text
    assert text.count("tl.load(keys_at") == 2
    assert " // 128 * " in text and ", 128)" in text.partition("\n    for ")[0]


def test_exponents_have_the_factor_of_base_two_in_a_constant_of_theirs():
    """Evidence: exp(x) is exp2(x * log2(e)): a score's own constant takes the factor in, what has none stays, and
    a maximum that is a result is one times ln(2)."""

    def text(score):
        algorithm = written(
            "shifted", {"m": 8, "n": 64}, {"x": (8, 64)}, f"largest[m] = maximum[n]({score})",
            f"total[m] = add[n](exp({score} - largest[m]))", results=("largest", "total"),
        )  # fmt: skip
        given = [_f(8, 64)]
        best = plans(algorithm, H100, 1)[0].schedule
        found, wanted = (_values(one, given) for one in (prepared(algorithm), algorithm))
        return source_of(algorithm, best), found, wanted

    scaled, found, wanted = text("x[m, n] * 0.5")
    assert "tl.exp(" not in scaled and "* 0.7213475204444817" in scaled
    assert "largest_two * 0.6931471805599453" in scaled
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    plain = text("x[m, n]")[0]
    assert "tl.exp(" in plain and "tl.exp2(" not in plain


def test_registers_are_limited_where_two_programs_fit_then():
    """Evidence: an H100, ragged prefill in tiles of 128 x 64 and 8 warps: 0.373 ms with at most 128 registers a
    thread, 0.481 ms without."""
    keys = (4096, 128)
    algorithm = written(
        "attention", {"m": 65536, "l": 4096, "j": 128, "n": 128},
        {"q": (65536, 128), "k": keys, "v": keys},
        "score[m, l] = add[j](q[m, j] * k[l, j])",
        "largest[m] = maximum[l](score[m, l] * 0.1)",
        "total[m] = add[l](exp(score[m, l] * 0.1 - largest[m]))",
        "summed[m, n] = add[l](float16(exp(score[m, l] * 0.1 - largest[m])) * v[l, n])",
        "out[m, n] = summed[m, n] / total[m]", dtype="float16",
    )  # fmt: skip
    kernel = Kernel(members=("score", "largest", "total", "summed", "out"), walked="l", warps=8,
                    tiles=_tiles(m=128, n=128, l=64))  # fmt: skip
    free, limited = (
        price(*_priced(algorithm, kernel.model_copy(update={"registers": most})))
        for most in (0, 128)
    )
    assert limited.registers == 128 < free.registers and limited.seconds < free.seconds
    found = {plan.schedule.kernels[0].registers for plan in plans(algorithm, H100, 6)}
    text = source_of(algorithm, Schedule(kernels=(kernel.model_copy(update={"registers": 128}),)))
    assert 128 in found and "num_stages=2, maxnreg=128)" in text


def test_elements_that_may_meet_are_summed_and_not_stored_one_by_one():
    """Evidence: without lengths that keep places apart several elements may have one place."""
    algorithm = written(
        "put", {"i": 8, "r": 5}, {"at": (8,), "x": (8,)},
        "out[r] = add[i](select(equal(at[i], position(r)), x[i], 0.0))",
    )  # fmt: skip
    assert member_of(algorithm.definition("out")).scatter is None


def test_sums_that_need_a_result_first_take_a_walk_of_their_own():
    """Evidence: the sum of squares about a mean has no factor by which a partial sum could be corrected."""
    algorithm = written(
        "variance", {"m": 8, "n": 4096}, {"x": (8, 4096), "scale": (1,)},
        "total[m] = add[n](x[m, n])", "out[m] = add[n](square(x[m, n] - total[m] * scale[m * 0]))",
    )  # fmt: skip
    kernel = Kernel(members=("total", "out"), tiles=_tiles(n=256), walked="n")
    text = source_of(algorithm, Schedule(kernels=(kernel,)))
    assert text.count("for n_start in") == 2
    assert price(*_priced(algorithm, kernel)).seconds > 0


def _priced(algorithm, kernel):
    ready = prepared(algorithm)
    (group,) = groups_of(ready, (kernel.members,))
    return group, kernel, arrays_of(ready), [a.name for a in ready.outputs], H100


def _matmul(m, n, k, dtype="float16"):
    return written("mm", {"m": m, "n": n, "k": k}, {"a": (m, k), "b": (k, n)},
                   "out[m, n] = add[k](a[m, k] * b[k, n])", dtype=dtype)  # fmt: skip


def test_prices_order_tiles_of_a_product_as_they_were_measured():
    """Evidence: an H100, 4096 x 4096 x 4096 in fp16: 0.364, 0.305 and 0.246 ms."""
    measured = [((128, 2), 0.364), ((32, 2), 0.305), ((64, 4), 0.246)]
    found = [
        price(*_priced(_matmul(4096, 4096, 4096), Kernel(members=("out",), tiles=_tiles(m=128, n=128, k=k), walked="k",
                                             warps=4, stages=stages))).seconds
        for (k, stages), _ in measured
    ]  # fmt: skip
    assert min(found) == found[-1] and all(ms * 0.5e-3 < s < ms * 2e-3
                                           for s, (_, ms) in zip(found, measured, strict=True))  # fmt: skip


def test_tiles_that_no_multiprocessor_holds_are_refused_by_name():
    """Evidence: 255 registers a thread and 227 KiB of shared memory (CUDA programming guide)."""
    wide = Kernel(members=("out",), tiles=_tiles(m=256, n=256, k=64), walked="k", warps=4)
    with pytest.raises(NotEmitted, match=r"out: its tiles take \d+ registers a thread"):
        price(*_priced(_matmul(4096, 4096, 4096), wide))
    deep = Kernel(
        members=("out",), tiles=_tiles(m=128, n=256, k=128), walked="k", warps=8, stages=4
    )
    with pytest.raises(NotEmitted, match=r"out: its tiles take \d+ bytes of shared memory"):
        price(*_priced(_matmul(4096, 4096, 4096), deep))


def test_a_sum_is_split_where_it_leaves_multiprocessors_idle(tmp_path):
    """Evidence: an H100 has 132 multiprocessors; 64 x 64 results are one tile of them."""
    algorithm = _matmul(64, 64, 8192, "float32")
    best = plans(algorithm, H100, 1)[0].schedule
    assert best.splits and best.splits[0].definition == "out" and len(best.kernels) == 2
    file = tmp_path / "split.py"
    file.write_text(source_of(algorithm, best))
    given = [_f(64, 8192), _f(8192, 64)]
    (found,) = _values(lift_launches(file, "run", given).algorithm, given)
    np.testing.assert_allclose(found, given[0].astype(float) @ given[1], rtol=1e-6, atol=1e-5)
    with pytest.raises(NotEmitted, match="missing is no reduction"):
        source_of(
            algorithm, best.model_copy(update={"splits": (Split(definition="missing", parts=2),)})
        )


def test_sums_are_split_with_the_maximum_that_they_are_relative_to(tmp_path):
    """Evidence: flash-decoding (Dao et al. 2023): parts of the keys with maxima of their own, rescaled."""
    algorithm, arrays = _lifted("attention"), _arrays("attention")
    splits = (Split(definition="largest", parts=4), Split(definition="total", parts=4))
    ready = prepared(algorithm, splits)
    parts = tuple(d.out for d in ready.definitions if d.out.endswith("_parts"))
    assert parts == ("largest_parts", "product2_parts", "total_parts")
    rest = tuple(d.out for d in ready.definitions if d.out not in ("product", *parts))
    kernels = (Kernel(members=("product", *parts), tiles=_tiles(m=16, n=16)), Kernel(members=rest))
    file = tmp_path / "split.py"
    file.write_text(source_of(algorithm, Schedule(kernels=kernels, splits=splits)))
    found = _values(lift_launches(file, "run", arrays).algorithm, arrays)
    np.testing.assert_allclose(found, _values(algorithm, arrays), rtol=1e-6, atol=1e-6)


def test_results_in_an_inputs_memory_are_stored_behind_all_reads(tmp_path):
    """Evidence: a kernel that changes its inputs, as unsloth's backward of SwiGLU does: both results are made
    of both inputs as they were."""
    algorithm = written(
        "exchange", {"m": 300}, {"a": (300,), "b": (300,)}, "a_out[m] = a[m] - b[m]",
        "b_out[m] = a[m] + b[m]", results=("a_out", "b_out"),
    )  # fmt: skip
    pairs = zip(algorithm.outputs, "ab", strict=True)
    algorithm = replace(algorithm, outputs=tuple(replace(a, updates=name) for a, name in pairs))
    file = tmp_path / "exchange.py"
    file.write_text(source_of(algorithm, plans(algorithm, H100, 1)[0].schedule))
    assert "a_out = a\n" in file.read_text() and "torch.empty" not in file.read_text()
    given = [_f(300), _f(300)]
    found = _values(lift_launches(file, "run", given).algorithm, given)
    np.testing.assert_allclose(found, [given[0] - given[1], given[0] + given[1]], atol=1e-6)


def test_a_solution_keeps_its_own_kernels_for_other_sizes():
    """Evidence: the contract of FlashInfer-Bench: one solution for every workload of a definition."""
    source = candidates(*scaled_rows("float32"), H100, 1)[0].source
    for rows, own in ((6, True), (7, False)):
        found = lift_kernel({"kernels.py": source}, "kernels.py::softmax", [Like((rows, 50))])
        line = source.splitlines()[found.lines["out"].line - 1]
        assert ("out_at" in line) == own
        x = _f(rows, 50)
        np.testing.assert_allclose(_values(found.algorithm, [x])[0].sum(-1), 1, rtol=1e-6)


def test_axes_are_alike_whose_tiles_have_as_many_elements():
    """Evidence: a tile of 16 elements is none of 8, also where both hold all of an axis of 8."""
    m, n, k = (Axis(name, 8) for name in "mnk")
    group = Group((member_of(ir.Reduce("out", (m, n), (k,), "add", read("x", m, k))),))
    for size, first in ((16, {n: index_of(m)}), (8, {n: index_of(m), k: index_of(m)})):
        tiles = tuple(Tile(axis=name, size=size) for name in "mn")
        assert Tiles(group, Kernel(members=("out",), tiles=tiles)).alike == first
