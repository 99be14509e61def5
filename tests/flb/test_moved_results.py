"""What moved sources compute: the same as before, through the Triton interpreter."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accelopt.moves.triton import arithmetic, host, loops, rows
from accelopt.moves.triton.propose import proposals
from accelopt.moves.triton.source import Source

HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "triton", "safetensors"))

# Attention of one row of queries, as people write it: an open loop, exponentials to the base e,
# values of index tensors read one by one.
OPEN_LOOP = (
    HEADER
    + """@triton.jit
def decode_kernel(q_ptr, k_ptr, v_ptr, begin, count, o_ptr, lse_ptr, scale, heads, group,
                  BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr):
    head = tl.program_id(0)
    channel = tl.arange(0, HEAD_DIM)
    q = tl.load(q_ptr + head * HEAD_DIM + channel).to(tl.float32)
    highest = -float("inf")
    total = 0.0
    result = tl.zeros((HEAD_DIM,), dtype=tl.float32)
    at = tl.zeros((), dtype=tl.int32)
    while at < count:
        token = at + tl.arange(0, BLOCK)
        inside = token < count
        place = ((begin + token[:, None]) * heads + head // group) * HEAD_DIM + channel[None, :]
        k = tl.load(k_ptr + place, mask=inside[:, None], other=0.0).to(tl.float32)
        logits = tl.sum(k * q[None, :], axis=1)
        logits *= scale
        logits = tl.where(inside, logits, -1.0e30)
        higher = tl.maximum(highest, tl.max(logits, axis=0))
        shrink = tl.exp(highest - higher)
        weights = tl.exp(logits - higher)
        v = tl.load(v_ptr + place, mask=inside[:, None], other=0.0).to(tl.float32)
        total = total * shrink + tl.sum(weights, axis=0)
        result = result * shrink + tl.sum(v * weights[:, None], axis=0)
        highest = higher
        at += BLOCK
    tl.store(o_ptr + head * HEAD_DIM + channel, result / total)
    tl.store(lse_ptr + head, (tl.log(total) + highest) * 1.4426950408889634)


def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    assert q.shape[0] == qo_indptr[-1].item()
    last = int(kv_indptr[-1].item())
    if last != k.shape[0]:
        raise ValueError("kv_indptr does not end at the number of keys")
    output = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -float("inf"), dtype=torch.float32, device=q.device)
    for sequence in range(qo_indptr.shape[0] - 1):
        q_begin, q_end = qo_indptr[sequence].item(), qo_indptr[sequence + 1].item()
        begin, end = kv_indptr[sequence].item(), kv_indptr[sequence + 1].item()
        for row in range(q_begin, q_end):
            decode_kernel[(q.shape[1],)](
                q[row], k, v, begin, end - begin - (q_end - 1 - row), output[row], lse[row],
                sm_scale, k.shape[1], q.shape[1] // k.shape[1], BLOCK=4, HEAD_DIM=q.shape[2],
            )
    return output, lse
"""
)

ONE_ROW = (
    HEADER
    + """@triton.jit
def norm_kernel(x_ptr, w_ptr, o_ptr, stride, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * stride + column).to(tl.float32)
    w = tl.load(w_ptr + column).to(tl.float32)
    mean = tl.sum(x * x, axis=0) / WIDTH
    tl.store(o_ptr + row * stride + column, x * tl.rsqrt(mean + eps) * w)


def run(hidden_states, weight):
    output = torch.empty_like(hidden_states)
    count, width = hidden_states.shape
    grid = (count,)
    norm_kernel[grid](hidden_states, weight, output, width, 1e-6, WIDTH=width)
    return output
"""
)


def kernel_of(text):
    return next(iter(Source(text).kernels.values()))


def counted(text):
    source = Source(text)
    kernel = kernel_of(text)
    return source.with_kernel(kernel, loops.counted_loop(kernel))


def based_on_two(text):
    source = Source(text)
    kernel = kernel_of(text)
    return source.with_kernel(kernel, arithmetic.base_two(kernel))


def test_an_open_loop_is_counted():
    text = counted(OPEN_LOOP)
    assert "for at in range(0, count, BLOCK):" in text
    assert "while" not in text
    assert "at += BLOCK" not in text


@pytest.mark.parametrize(
    "change",
    [
        ("        at += BLOCK\n", "        at += BLOCK\n        count -= 1\n"),
        ("        at += BLOCK\n", "        at += BLOCK\n    tl.store(lse_ptr, at)\n"),
        ("        highest = higher\n", "        highest = higher\n        at += 0\n"),
        ("while at < count", "while at <= count"),
        ("    at = tl.zeros((), dtype=tl.int32)\n", "    at = tl.load(lse_ptr)\n"),
    ],
)
def test_a_loop_that_may_not_be_counted_stays_open(change):
    assert change[0] in OPEN_LOOP
    assert loops.counted_loop(kernel_of(OPEN_LOOP.replace(*change))) is None


def test_the_base_is_folded_into_the_scale_and_out_of_what_else_is_read():
    text = based_on_two(OPEN_LOOP)
    assert "tl.exp(" not in text
    assert "logits = logits_unscaled * (scale * 1.4426950408889634)" in text
    assert "tl.log(total) + highest * 0.6931471805599453" in text
    assert "tl.where(inside, logits, -1.44269" in text


@pytest.mark.parametrize(
    "change",
    [
        ("logits *= scale", "logits = logits + 1.0"),  # nothing to fold into
        ("weights = tl.exp(logits - higher)", "weights = tl.exp(logits * logits)"),
        ("shrink = tl.exp(highest - higher)", "shrink = tl.exp(tl.load(lse_ptr))"),
        ("tl.maximum(highest, tl.max", "tl.load(q_ptr) + tl.maximum(highest, tl.max"),
    ],
)
def test_exponents_that_a_factor_does_not_pass_through_stay(change):
    assert change[0] in OPEN_LOOP
    assert arithmetic.base_two(kernel_of(OPEN_LOOP.replace(*change))) is None


def test_values_are_read_once_and_not_to_be_checked():
    text = host.values_read_once(Source(host.without_value_checks(Source(OPEN_LOOP))))
    assert ".item()" not in text
    assert "raise" not in text
    assert text.count(".tolist()") == 2


def test_an_index_tensor_that_changes_is_read_where_it_was():
    text = OPEN_LOOP.replace(
        "        for row in", "        qo_indptr = qo_indptr + 0\n        for row in"
    )
    assert "qo_indptr[sequence].item()" in host.values_read_once(Source(text))


@pytest.mark.parametrize(
    "change",
    [
        ("mean = tl.sum(x * x, axis=0)", "mean = tl.sum(x * x, axis=0) + tl.program_id(1)"),
        ("grid = (count,)", "grid = (count, 1)"),
        ("    w = tl.load", "    if row > 3:\n        row = 3\n    w = tl.load"),
        ("tl.store(o_ptr + row * stride + column", "tl.store(o_ptr + column"),
    ],
)
def test_rows_that_are_not_alone_stay_apart(change):
    assert change[0] in ONE_ROW
    source = Source(ONE_ROW.replace(*change))
    assert rows.several_rows(source, source.launches[0], 4) is None


def test_the_grid_goes_with_the_rows():
    for proposal in proposals(ONE_ROW):
        if "row_is_inside" in proposal.source:
            [count] = set(re.findall(r"ROWS=(\d+)", proposal.source))
            assert f"triton.cdiv(count, {count})" in proposal.source


def moved(starter):
    """Sources by name with the definition they compute."""
    prefill, norm = "gqa_ragged_prefill_causal_h32_kv8_d128", "rmsnorm_h4096"
    source = Source(ONE_ROW)
    yield prefill, OPEN_LOOP
    yield prefill, based_on_two(counted(OPEN_LOOP))
    yield prefill, host.values_read_once(Source(OPEN_LOOP))
    for count in (4, 16):
        yield norm, rows.several_rows(source, source.launches[0], count)
    for name in (prefill, "gqa_paged_decode_h32_kv8_d128_ps16"):
        plain = starter.solutions[f"plain_{name}"].main_source
        together = [
            p for p in proposals(plain) if "power" in p.sentence and "Set" not in p.sentence
        ]
        assert together
        for proposal in together[:2]:
            yield name, proposal.source
    for proposal in proposals(OPEN_LOOP)[:3]:
        yield prefill, proposal.source


@pytest.mark.skipif(not HAS_TORCH, reason="torch and triton are not installed")
def test_moved_sources_compute_what_they_did(starter):
    lines = []
    for name, text in moved(starter):
        plain = starter.solutions[f"plain_{name}"]
        lines.append(
            json.dumps(
                {
                    "definition": starter.definitions[name].model_dump(mode="json"),
                    "workload": starter.workloads[name][-1].model_dump(mode="json"),
                    "solution": plain.with_source(text, "moved").model_dump(mode="json"),
                }
            )
        )
    script = Path(__file__).parent / "interpreted.py"
    root = Path(__file__).resolve().parents[2]
    ended = subprocess.run(
        [sys.executable, str(script)],
        input="\n".join(lines), capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    errors = [float(line) for line in ended.stdout.split()]
    assert len(errors) == len(lines)
    assert max(errors) < 3e-3, errors
