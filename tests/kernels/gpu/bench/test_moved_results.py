"""What moved sources compute: the same as before, through the Triton interpreter."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from flb_traces import installed
from plain_kernels import BY_SEQUENCE, FLAT, LOOPED, OPEN_LOOP

from accelopt.kernels.triton.moves import (
    arithmetic,
    gqa_packing,
    host_synchronisation,
    launch_batching,
    loops,
    split_k,
)
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source

HAS_TORCH = installed("torch", "triton", "safetensors")


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
    text = host_synchronisation.values_read_once(
        Source(host_synchronisation.without_value_checks(Source(OPEN_LOOP)))
    )
    assert ".item()" not in text
    assert "raise" not in text
    assert text.count(".tolist()") == 2


def test_an_index_tensor_that_changes_is_read_where_it_was():
    text = OPEN_LOOP.replace(
        "        for row in", "        qo_indptr = qo_indptr + 0\n        for row in"
    )
    assert "qo_indptr[sequence].item()" in host_synchronisation.values_read_once(Source(text))


def moved(starter):
    """Sources by name with the definition they compute."""
    prefill = "gqa_ragged_prefill_causal_h32_kv8_d128"
    yield prefill, based_on_two(counted(OPEN_LOOP))
    yield prefill, host_synchronisation.values_read_once(Source(OPEN_LOOP))
    source = Source(LOOPED)
    yield prefill, LOOPED
    yield prefill, launch_batching.one_launch(source, source.launches[0])
    yield prefill, proposals(LOOPED)[0].source
    for text in (OPEN_LOOP, FLAT):
        yield prefill, text
        yield prefill, gqa_packing.heads_together(Source(text), Source(text).launches[0])
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
    source = Source(gqa_packing.heads_together(Source(FLAT), Source(FLAT).launches[0]))
    shared = split_k.split_loop(source, source.launches[0], 64)
    yield prefill, shared.replace("processors = 1", "processors = 2")


def interpreted(script, lines):
    """The numbers that a script beside this one prints when it is given lines."""
    root = Path(__file__).resolve().parents[4]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script)],
        input="\n".join(lines), capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return [float(line) for line in ended.stdout.split()]


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
    errors = interpreted("interpreted.py", lines)
    assert len(errors) == len(lines)
    assert max(errors) < 3e-3, errors


@pytest.mark.skipif(not HAS_TORCH, reason="torch and triton are not installed")
def test_loops_over_the_keys_of_several_sequences_compute_what_they_did():
    chosen = [
        proposal
        for proposal in proposals(BY_SEQUENCE)
        if "pack_gqa_heads" in proposal.change.move and "Set" not in proposal.sentence
    ]
    moves = {move for proposal in chosen for move in proposal.change.move.split("+")}
    assert {"tighten_loop_bound", "prefetch_addresses", "split_k"} <= moves
    sources = [BY_SEQUENCE, *(proposal.source for proposal in chosen)]
    errors = interpreted("alike.py", [json.dumps(source) for source in sources])
    assert len(errors) == len(sources) - 1
    assert max(errors) < 3e-3, errors
