"""Kernels in Gluon that the moves write: what they compute, on an emulator, and when there is none."""

import re

import ml_dtypes
import numpy as np
import pytest
from gluon_emulated import emulated, launch
from plain_kernels import BY_SEQUENCE, OPEN_LOOP

from accelopt.kernels.gpu.bench.source.source_rules import violations
from accelopt.kernels.triton.moves import steps
from accelopt.kernels.triton.moves.gluon.beside import beside_products
from accelopt.kernels.triton.moves.gluon.kernel import BESIDE
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source

HEADS, HALF, KEYS = 16, 256, 64
PAGED = BY_SEQUENCE.replace("HEADS = 2", f"HEADS = {HEADS}").replace("HALF=16", f"HALF={HALF}")
KERNEL = f"by_sequence_kernel{BESIDE}"


ROUTE = next(r for r in steps.routes_of(steps.KernelKind.DECODE) if r[-1] is steps.BESIDE)


def beside(text):
    """The text after the route that ends in Gluon, None where its last step does not fit."""
    source, last = Source(text), None
    for name in list(source.kernels):
        for step in ROUTE:
            last = step.move(source, name)
            source = source if last is None else Source(last)
    return last


def gluon_part(text):
    return text[text.index(f"def {KERNEL}") :].split("\ndef run")[0]


class Pages:
    """Sequences of queries and keys, their keys on pages in no order."""

    def __init__(self, queries, keys, seed=0):
        rng = np.random.default_rng(seed)
        self.queries, self.keys = queries, keys
        self.q_begin = np.cumsum([0, *queries]).astype(np.int32)
        self.k_begin = np.cumsum([0, *keys]).astype(np.int32)
        pages = 2 * int(self.k_begin[-1])
        self.page = rng.permutation(pages)[: self.k_begin[-1]].astype(np.int32)
        shape = (int(self.q_begin[-1]), HEADS, 2 * HALF)
        self.q = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        self.k = rng.standard_normal((pages, 2 * HALF)).astype(ml_dtypes.bfloat16)
        self.scale = 0.1

    def attention(self):
        """Outputs and base-two log-sums in float64, as the start kernel says it."""
        out = np.zeros(self.q.shape)
        lse = np.full(self.q.shape[:2], -np.inf)
        for s, (queries, keys) in enumerate(zip(self.queries, self.keys, strict=True)):
            k = self.k[self.page[self.k_begin[s] : self.k_begin[s + 1]]].astype(np.float64)
            for i in range(queries):
                seen = k[: max(keys - queries + i + 1, 0)]
                if not len(seen):
                    continue
                row = self.q_begin[s] + i
                scores = self.q[row].astype(np.float64) @ seen.T * self.scale
                weights = np.exp(scores - scores.max(1, keepdims=True))
                out[row] = weights @ seen / weights.sum(1, keepdims=True)
                lse[row] = (scores.max(1) + np.log(weights.sum(1))) / np.log(2)
        return out, lse

    def run(self, text):
        """What the kernel in Gluon stores; NaN where it stores nothing."""
        rows = len(self.q)
        out = np.full(self.q.shape, np.nan, np.float32)
        lse = np.full(self.q.shape[:2], np.nan, np.float32)
        sequences = len(self.queries)
        given = {
            "q_ptr": self.q.reshape(-1), "k_ptr": self.k.reshape(-1), "v_ptr": self.k.reshape(-1),
            "page_ptr": self.page, "qo_indptr_ptr": self.q_begin, "kv_indptr_ptr": self.k_begin,
            "o_ptr": out.reshape(-1), "lse_ptr": lse.reshape(-1), "scale": self.scale,
            "kv_heads": 1, "HEADS": HEADS, "HALF": HALF, "BLOCK": KEYS, "query_count": rows,
            "QUERIES_TOGETHER": 4, "HEADS_TOGETHER": HEADS, "sequence_count": sequences,
            "SEARCH_STEPS": (sequences - 1).bit_length(),
        }  # fmt: skip
        [call] = re.findall(rf"{KERNEL}\[.*", text)
        grid = (-(-rows // 4), 1)
        warps = int(re.search(r"num_warps=(\d+)", call)[1])
        parameters = re.search(rf"def {KERNEL}\((.*?)\):", text, re.S)[1]
        names = {p.split(":")[0].strip() for p in parameters.split(",")}
        with_table = {
            "sequence_ptr": np.repeat(np.arange(sequences), self.queries).astype(np.int32)
        }
        own = {name: value for name, value in (given | with_table).items() if name in names}
        launch(emulated(text), KERNEL, grid, num_warps=warps, **own)
        return out, lse


@pytest.mark.parametrize(
    ("queries", "keys"),
    [
        ([5, 1, 9], [70, 1, 200]),
        ([3, 1, 70], [3, 300, 70]),
        ([6], [130]),
        ([1] * 9, [64, 65, 1, 128, 3, 2, 191, 7, 63]),
    ],
)
def test_the_kernel_in_gluon_computes_what_the_start_does(queries, keys):
    pages = Pages(queries, keys)
    out, lse = pages.run(beside(PAGED))
    right, right_lse = pages.attention()
    np.testing.assert_allclose(out, right, atol=0.02)
    np.testing.assert_allclose(lse, right_lse, atol=1e-3)


def test_what_is_left_out_is_what_the_start_leaves_out():
    # A sequence without queries, one without keys, and queries before the first key.
    pages = Pages([3, 0, 2, 5, 1], [5, 4, 0, 2, 66])
    out, lse = pages.run(beside(PAGED))
    right, right_lse = pages.attention()
    seen = np.isfinite(right_lse)
    np.testing.assert_allclose(out[seen], right[seen], atol=0.02)
    np.testing.assert_allclose(lse[seen], right_lse[seen], atol=1e-3)


@pytest.mark.parametrize(
    "fault",
    [
        ("async_copy.wait_group(0)\n            fence", "fence"),
        ("            fence_async_shared()\n", ""),
        ("k_at_0_second, ", "k_at_0_first, "),
        ("following = start + BLOCK", "following = start"),
        (" = start + BLOCK\n            if", " = start\n            if"),
        ("gl.where(gl.expand_dims", "gl.where(~gl.expand_dims"),
    ],
)
def test_a_fault_in_the_kernel_would_be_seen(fault):
    text = beside(PAGED)
    part = gluon_part(text)
    assert fault[0] in part
    pages = Pages([5, 1, 9], [70, 1, 200])
    try:
        out, _ = pages.run(text.replace(part, part.replace(*fault, 1)))
    except Exception:
        return
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(out, pages.attention()[0], atol=0.02)


def test_copies_stand_between_products_and_are_waited_for_once_a_step():
    part = gluon_part(beside(PAGED))
    loop = part[part.index("for start in range") :]
    first, second = loop.split("        if second_start", 1)
    for half in (first, second.split("\n        async_copy.wait_group(0)")[0]):
        lines = [line.split("(")[0].split()[-1] for line in half.splitlines() if "(" in line]
        kinds = [
            k for k in lines if "copy_global" in k or k in ("warpgroup_mma", "warpgroup_mma_wait")
        ]
        assert kinds[:4] == ["warpgroup_mma", "async_copy.async_copy_global_to_shared"] * 2
        assert kinds.count("warpgroup_mma_wait") == 2
        assert half.count("fence_async_shared()") == 1


def test_the_host_chooses_by_what_it_is_given(starter):
    text = beside(PAGED)
    assert "if reads_beside(k, q):" in text
    launches = [
        line.strip() for line in text.splitlines() if "by_sequence_kernel" in line and "[" in line
    ]
    assert len(launches) == 2
    assert "BLOCK=64, num_warps=" in launches[0]
    assert "BLOCK=32, num_warps=8" in launches[1], "elsewhere the kernel in Triton, which must fit"
    assert violations(starter.solutions["plain_rmsnorm_h4096"].with_source(text, "s")) == []


def test_the_host_is_asked_whether_rows_begin_at_16_bytes():
    text = beside(PAGED.replace("page[:, None] * (2 * HALF)", "page[:, None] * kv_heads"))
    assert "if reads_beside(k, q) and (1) % 16 == 0:" in text


def test_sequences_are_searched_for_the_first_and_the_last_query_alone():
    part = gluon_part(beside(PAGED))
    before = part[: part.index("for start in range")]
    assert "gl.max(" not in before
    assert "gl.min(" not in part
    assert before.count("gl.static_range(SEARCH_STEPS)") == 2


def test_it_is_proposed_first_and_nothing_is_tuned_that_does_not_run():
    found = [p for p in proposals(PAGED) if "copy_beside_products" in p.change.move]
    assert proposals(PAGED)[0] in found
    assert "change_block_sizes" not in found[0].change.move
    again = [p.change.move for p in proposals(found[0].source)]
    assert not any("change_block_sizes" in move for move in again)


@pytest.mark.parametrize(
    "change",
    [
        # Pieces that no 128 bytes hold, too many channels, and so few that one group sums them all.
        ("HALF=256", "HALF=272"),
        ("HALF=256", "HALF=1024"),
        ("HALF=256", "HALF=64"),
        ("HALF=256", "HALF=q.shape[2] // 2"),
        # What a step computes says where the next one's keys are
        ("page = tl.load(page_ptr + begin + token, mask=inside, other=0)",
         "page = tl.load(page_ptr + begin + token + (highest > 9.0), mask=inside, other=0)"),
        ("k_ptr + page[:, None] * (2 * HALF) + channel[None, :]",
         "k_ptr + page[:, None] * (2 * HALF) + channel[None, :] + tl.sum(q)"),
        ("    for start in range(0, count, BLOCK):",
         "    for again in range(2):\n        total += 0.0\n    for start in range(0, count, BLOCK * 2):"),
    ],
)  # fmt: skip
def test_what_has_no_such_form_stays_in_triton(change):
    assert change[0] in PAGED
    text = beside(PAGED.replace(*change))
    assert text is None or KERNEL not in text


def test_kernels_without_scores_stay_in_triton():
    assert beside(OPEN_LOOP) is None


TILED = """import torch
import triton
import triton.language as tl


@triton.jit
def by_sequence_kernel(q_ptr, k_ptr, o_ptr, rows, keys, scale, ROWS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.arange(0, WIDTH)
    q = tl.load(q_ptr + row[:, None] * WIDTH + channel[None, :], mask=row[:, None] < rows, other=0.0)
    highest = tl.full([ROWS], -1e30, dtype=tl.float32)
    total = tl.zeros([ROWS], dtype=tl.float32)
    out = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
    for start in range(0, keys, BLOCK):
        token = start + tl.arange(0, BLOCK)
        k = tl.load(k_ptr + token[:, None] * WIDTH + channel[None, :], mask=token[:, None] < keys, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * scale
        scores = tl.where(token[None, :] < keys, scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        shrink = tl.exp2(highest - higher)
        weights = tl.exp2(scores - higher[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        out = out * shrink[:, None] + tl.dot(weights.to(k.dtype), k)
        highest = higher
    if keys > 0:
        tl.store(o_ptr + row[:, None] * WIDTH + channel[None, :], out / total[:, None], mask=row[:, None] < rows)
    else:
        tl.store(o_ptr + row[:, None] * WIDTH + channel[None, :], 7.0, mask=row[:, None] < rows)


def run(q, k, scale):
    o = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    by_sequence_kernel[(triton.cdiv(q.shape[0], 64),)](q, k, o, q.shape[0], k.shape[0], scale, ROWS=64, WIDTH=512, BLOCK=16)
    return o
"""
LOAD = "tl.load(k_ptr + token[:, None] * WIDTH + channel[None, :], mask=token[:, None] < keys, other=0.0)"
SUM = "out = out * shrink[:, None] + tl.dot(weights.to(k.dtype), k)"
START = "    highest = tl.full("
STORE = "    if keys > 0:\n"
STORED = "tl.store(o_ptr + row[:, None] * WIDTH + channel[None, :], out / total[:, None], mask=row[:, None] < rows)"
WITHOUT_KEYS = STORED.replace("out / total[:, None]", "7.0")
LOOP = TILED[TILED.index("    for start in") : TILED.index(STORE)]
CHUNK = "for start in range(begin, tl.minimum(keys, begin + 64), BLOCK):"
STYLES = {
    "as it is": (),
    "leaves early": ((START, f"    if keys == 0:\n        {WITHOUT_KEYS}\n        return\n{START}"),),
    "divides in a branch": ((STORED, f"out = out / total[:, None]\n        {STORED.replace(' / total[:, None]', '')}"),),
    "weights that change behind their sum": (
        ("total = total * shrink + tl.sum(weights, axis=1)", "part = tl.sum(weights, axis=1)\n        weights = weights * 2.0"),
        ("        highest = higher\n", "        total = total * shrink + part\n        highest = higher\n"),
        ("out / total", "out * 0.5 / total"),
    ),
    "chunks": (
        (LOOP, "    begin = 0\n    while begin < keys:\n" + LOOP.replace("for start in range(0, keys, BLOCK):", CHUNK)
               .replace("    ", "        ", 1).replace("\n    ", "\n        ") + "        begin = begin + 64\n"),
    ),
    "arguments by name": (
        ("tl.zeros([ROWS], dtype=tl.float32)", "tl.full([ROWS], dtype=tl.float32, value=0.0)"),
        (LOAD, LOAD.replace("mask=", "other=None, mask=").replace(", other=0.0", "")),
    ),
    "a dtype of a name": (("row[:, None] * WIDTH", "row.to(row.dtype)[:, None] * WIDTH"),),
    "a pointer that moves on": ((START, f"    k_ptr += tl.program_id(0) * 0 * WIDTH\n{START}"),),
    "columns": (
        (LOAD, "tl.load(k_ptr + token[None, :] * WIDTH + channel[:, None], mask=token[None, :] < keys, other=0.0)"),
        ("tl.dot(q, tl.trans(k))", "tl.dot(q, k)"),
        ("tl.dot(weights.to(k.dtype), k)", "tl.dot(weights.to(k.dtype), tl.trans(k))"),
    ),
    "in place": ((SUM, "out *= shrink[:, None]\n        out += tl.dot(weights.to(k.dtype), k)"),),
    "onto a sum": ((SUM, "out = tl.dot(weights.to(k.dtype), k, acc=out * shrink[:, None])"),),
    "by name": (
        (SUM, "typed = weights.to(k.dtype)\n        seen = tl.dot(typed, k)\n        out = out * shrink[:, None] + seen"),
        (f"k = {LOAD}", "place = token[:, None] * WIDTH\n        place = k_ptr + place + channel[None, :]\n"
                        "        k = tl.load(place, mask=token[:, None] < keys, other=0.0)"),
    ),
}  # fmt: skip


def styled(changes):
    text = TILED
    for change in changes:
        assert change[0] in text
        text = text.replace(*change)
    source = Source(text)
    return beside_products(source, source.launches[0])


@pytest.mark.parametrize("changes", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("keys", [150, 64, 0])
def test_kernels_of_other_styles_compute_what_they_did(changes, keys):
    rng = np.random.default_rng(3)
    q, k = (rng.standard_normal((n, 512)).astype(ml_dtypes.bfloat16) for n in (70, max(keys, 1)))
    out = np.full((70, 512), np.nan, np.float32)
    launch(
        emulated(styled(changes)), KERNEL, (2,), num_warps=8, q_ptr=q.reshape(-1), k_ptr=k.reshape(-1),
        o_ptr=out.reshape(-1), rows=70, keys=keys, scale=0.1, ROWS=64, WIDTH=512, BLOCK=64,
    )  # fmt: skip
    right = np.full((70, 512), 7.0)
    if keys:
        scores = q.astype(np.float64) @ k.astype(np.float64).T * 0.1
        weights = np.exp2(scores - scores.max(1, keepdims=True))
        right = weights @ k.astype(np.float64) / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(out, right, atol=0.02)


@pytest.mark.parametrize(
    "change",
    [
        ("        highest = higher\n", "        highest = higher\n        out = out + 1.0\n"),
        (
            "tl.dot(q, tl.trans(k)) * scale",
            "tl.dot(q, tl.trans(k)) * scale + tl.dot(q, tl.trans(k))",
        ),
        ("other=0.0)\n        scores", "other=1.0)\n        scores"),
        ("* scale\n", "* scale + tl.sigmoid(scale)\n"),
        ("BLOCK=16)", "BLOCK=k.shape[1])"),
        ("ROWS=64, W", "ROWS=128, W"),
        ("ROWS=64, W", "ROWS=32, W"),
        ("return o", "return o, by_sequence_kernel[(1,)](q)"),
    ],
)
def test_styles_without_such_a_form_stay_in_triton(change):
    assert change[0] in TILED
    text = TILED.replace(*change)
    source = Source(text)
    written = beside_products(source, source.launches[0])
    assert (written is None) == (change[0] not in ("BLOCK=16)", "return o"))


NEXT = "        highest = higher\n"
SCORES = "        scores = tl.dot(q, tl.trans(k)) * scale\n"
BLOCK_OF_PAGE = "(start // BLOCK * BLOCK + tl.arange(0, BLOCK))[:, None]"
REFUSED = {
    # Copies are a step ahead, behind all that says where they are.
    "a place that goes on": (
        (START, f"    place = tl.arange(0, BLOCK)\n{START}"),
        (LOAD, LOAD.replace("token[:, None] * W", "place[:, None] * W")),
        (NEXT, f"{NEXT}        place = place + BLOCK\n"),
    ),
    "two places of one name": (
        (f"k = {LOAD}", f"at = token * WIDTH\n        k = {LOAD.replace('token[:, None] * WIDTH', 'at[:, None]')}\n"
                        f"        at = at + WIDTH\n        v = {LOAD.replace('token[:, None] * WIDTH', 'at[:, None]')}"),
        ("weights.to(k.dtype), k)", "weights.to(v.dtype), v)"),
    ),
    "an address of an earlier value": (
        (f"k = {LOAD}", "at = k_ptr + token[:, None] * WIDTH + channel[None, :]\n        token = token + 1\n"
                        "        k = tl.load(at, mask=token[:, None] < keys)\n        token = token - 1"),
    ),
    "a tile that is summed": ((SCORES, f"{SCORES}        scores = scores + tl.sum(k.to(tl.float32), axis=1)[None, :]\n"),
                              ("tl.sum(k.to(tl.float32), axis=1)[None, :]", "norm[None, :]"),
                              (SCORES, f"        norm = tl.sum(k.to(tl.float32), axis=1)\n{SCORES}")),
    "a position that is read behind": ((START, f"    start = 0\n{START}"), (STORE, f"    total = total + start\n{STORE}")),
    "an end that changes": (("range(0, keys, BLOCK)", "range(0, end, BLOCK)"), (START, f"    end = keys\n{START}"),
                            (NEXT, f"{NEXT}        end = end - 1\n")),
    "scores that begin with more": (
        (SCORES, "        scores = tl.zeros([ROWS, BLOCK], dtype=tl.float32)\n        scores = scores + 1.0\n"
                 "        scores = scores * 2.0\n        scores = scores + tl.dot(q, tl.trans(k))\n"),
    ),
    # The number of keys a step is set anew.
    "pages as long as a step": ((LOAD, LOAD.replace("token[:, None]", BLOCK_OF_PAGE, 1)),),
    "no key is left out": ((", mask=token[:, None] < keys, other=0.0", ""),
                           ('scores = tl.where(token[None, :] < keys, scores, -float("inf"))', "scores = scores + 0.0")),
    "a grid of the keys": (("[(triton.cdiv(q.shape[0], 64),)]", "[grid]"),
                           ("    o = torch", "    grid = lambda META: (triton.cdiv(q.shape[0], META['BLOCK']),)\n    o = torch")),
    "a grid of the warps": (("[(triton.cdiv(q.shape[0], 64),)]", "[lambda META: (META['num_warps'],)]"),),
    # 16 bytes are not side by side, or not known to be.
    "a place that is loaded": ((START, f"    begin = tl.load(k_ptr).to(tl.int32)\n{START}"),
                               (LOAD, LOAD.replace("k_ptr + ", "k_ptr + begin + "))),
    "every second channel": ((LOAD, LOAD.replace("channel[None, :]", "2 * channel[None, :]")),),
    "a mask of channels": ((LOAD, LOAD.replace("mask=token[:, None] < keys", "mask=channel[None, :] <= token[:, None]")),),
    # What is read by its place, or has no layout.
    "a load by name": ((LOAD, LOAD.replace("tl.load(", "tl.load(pointer=")),),
    "a store by name": ((STORED, STORED.replace("tl.store(", "tl.store(pointer=").replace("out / ", "value=out / ")),),
    "a sum by name": (("tl.sum(weights, axis=1)", "tl.sum(input=weights, axis=1)"),),
    "a range by name": (("tl.arange(0, BLOCK)", "tl.arange(start=0, end=BLOCK)"),),
    "zeros by name": (("tl.zeros([ROWS], dtype", "tl.zeros(shape=[ROWS], dtype"),),
    "a range from further on": (("start + tl.arange(0, BLOCK)", "start - BLOCK + tl.arange(BLOCK, 2 * BLOCK)"),),
    "a number that is full": (("scores, -float(\"inf\"))", "scores, nothing)"),
                              (START, f"    nothing = tl.full((), -1e30, tl.float32)\n{START}")),
    "no range": (("range(0, keys, BLOCK)", "(0, 16)"),),
    # The kernel is not compiled from its parameters alone, or a name is taken.
    "heuristics": (("@triton.jit", "@triton.heuristics({'WIDTH': lambda args: 512})\n@triton.jit"),),
    "a number's annotation": (("keys, scale,", "keys: tl.int64, scale,"),),
    "a tile's name": (("q_ptr, k_ptr", "q_ptr, k_first"), ("k_ptr", "k_first")),
    "a layout's name": (("keys, scale,", "keys, SCORES,"), ("* scale", "* SCORES")),
    "a helper's name": (("def run", "def reads_beside(q):\n    return True\n\n\ndef run"),),
    "torch by another name": (("import torch", "import torch as th"), ("torch.", "th.")),
    # The launch is more than a statement with the kernel's arguments.
    "a launch behind a colon": (("    by_sequence_kernel[", "    if keys_known: by_sequence_kernel["),),
    "a launch before another statement": (("BLOCK=16)", "BLOCK=16); q = k"),),
    "arguments in a mapping": (("BLOCK=16)", "**{'BLOCK': 16})"),),
    "clusters": (("BLOCK=16)", "BLOCK=16, num_ctas=2)"),),
}  # fmt: skip


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_what_would_mean_something_else_stays_in_triton(changes):
    assert styled(changes) is None


def test_strides_are_asked_for_what_copies_need_of_them():
    parameters = (("rows, keys, scale,", "rows, keys, scale, row_stride, stride,"),
                  ("k.shape[0], scale,", "k.shape[0], scale, k.stride(0), k.stride(1),"))  # fmt: skip
    strided = LOAD.replace("* WIDTH + channel[None, :]", "* row_stride + channel[None, :] * stride")
    text = styled((*parameters, (LOAD, strided)))
    asked = "(k.stride(0)) % 16 == 0 and (k.stride(1)) == 1"
    assert f"if reads_beside(k, q) and {asked}:" in text
    named = (START, f"    many = row_stride\n{START}"), (LOAD, LOAD.replace("* WIDTH", "* many"))
    assert "if reads_beside(k, q) and (k.stride(0)) % 16 == 0:" in styled((*parameters, *named))


def test_two_kernels_share_what_they_bring():
    first, second = (
        TILED.replace("by_sequence_kernel", name).replace("def run", f"def run_{name}")
        for name in ("one", "two")
    )
    source = Source(first + second[second.index("\n\n@triton.jit") :])
    for name in ("one", "two"):
        launch_of = next(item for item in source.launches if item.kernel.name == name)
        source = Source(beside_products(source, launch_of))
    assert source.text.count("def reads_beside(") == source.text.count("import gluon\n") == 1
    assert {f"one{BESIDE}", f"two{BESIDE}"} <= {function.name for function in source.functions}


def test_a_branch_whose_results_are_read_behind_it_stays():
    changes = [
        ("    if keys > 0:\n", "    if keys > 0:\n        out = out * 2.0\n"),
        ("\n\ndef run", "    tl.store(o_ptr + row * 0, tl.sum(out, axis=1))\n\n\ndef run"),
    ]
    assert "gl.where(keys > 0" in styled(())
    assert "gl.where(keys > 0" in styled(changes[:1])
    assert "gl.where(keys > 0" not in styled(changes)


@pytest.mark.parametrize(
    "body, other",
    [
        # What one branch makes is not what the other one stores, nor what decides between them.
        (f"out = out / total[:, None]\n        {STORED.replace(' / total[:, None]', '')}", "out"),
        (f"{STORED.replace('out / ', 'tl.load(k_ptr) + out / ')}", "7.0"),
        (f"keys = keys - 1\n        {STORED}", "7.0"),
    ],
)
def test_a_branch_is_kept_where_a_choice_would_store_something_else(body, other):
    text = styled([(STORED, body), ("7.0", other)])
    assert text is None or "gl.where(keys > 0" not in gluon_part(text)
