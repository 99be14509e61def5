"""Loops that each query ends at its own last key, for several queries in one program."""

import ast
import json

import pytest
from flb_traces import installed
from plain_kernels import OWN_ENDS
from test_moved_results import interpreted

from accelopt.kernels.triton.moves import ends, loops, queries
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source


def common(text):
    kernel = Source(text).launches[0].kernel
    stepped = loops.stepped_by_tiles(kernel)
    return ends.common_ends(kernel.node if stepped is None else stepped)


def test_the_loop_goes_on_to_the_last_of_all():
    found = common(OWN_ENDS)
    text = ast.unparse(found.node)
    assert f"count_of_all = {ends.LAST}(count)" in text
    assert "for start in range(0, count_of_all, BLOCK):" in text
    assert "inside_of_all = seen_of_all & (begin + token < last)" in text
    assert found.of_all == {
        "count": "count_of_all", "seen": "seen_of_all", "inside": "inside_of_all",
    }  # fmt: skip
    for name in ("highest", "total", "result"):
        assert f"{name} = tl.where(count > 0, {name}, {name}_before)" in text


def test_nobody_leaves_early():
    text = ast.unparse(common(OWN_ENDS).node)
    assert "return" not in text
    assert text.count("mask=count <= 0") == 2 and text.count("mask=count > 0") == 2
    assert "places_of_none" in text
    zero = ast.unparse(common(OWN_ENDS.replace("count <= 0", "count == 0")).node)
    assert zero.count("mask=count == 0") == 2 and zero.count("mask=count != 0") == 2


@pytest.mark.parametrize(
    "change",
    [
        ("tl.where(seen, tl.sum", "tl.where(token < last, tl.sum"),
        ('scale, -float("inf"))', "scale, 0.0)"),
        ("        before = highest\n", "        before = highest\n        count = count + 0\n"),
        ("result / total", "result / total * shrink"),
    ],
)
def test_other_loops_keep_their_ends(change):
    assert change[0] in OWN_ENDS
    assert common(OWN_ENDS.replace(*change)) is None


def test_a_load_of_a_row_s_own_keeps_its_mask():
    """What differs by its address is not loaded for rows that did not ask for it."""
    text = OWN_ENDS.replace(
        "        before = highest\n",
        "        bias = tl.load(q_ptr + query * HEADS + token, mask=inside, other=0.0)\n"
        "        logits += bias\n        before = highest\n",
    )
    source = Source(text)
    moved = queries.queries_together(source, source.launches[0], 64)
    assert moved is not None
    assert "mask=inside & row_is_inside[:, None]" in moved
    assert "tl.load(page_ptr + begin + token, mask=inside_of_all, other=0)" in moved


@pytest.mark.skipif(not installed("torch", "triton"), reason="torch and triton are not installed")
def test_what_is_proposed_computes_what_it_did():
    chosen = [p for p in proposals(OWN_ENDS) if "Set" not in p.sentence]
    first = [p for p in chosen if "queries_together" in p.change.move]
    assert first and "find_sequence" in first[0].change.move
    sources = [OWN_ENDS, *(proposal.source for proposal in chosen)]
    errors = interpreted("alike.py", [json.dumps(source) for source in sources])
    assert len(errors) == len(chosen)
    assert max(errors) < 3e-3, [(p.change.move, e) for p, e in zip(chosen, errors)]
