"""Unified diffs of kernels: applied where they say, or not at all."""

import difflib

from hypothesis import given, settings
from hypothesis import strategies as st

from accelopt.kernel_source import apply_patch, edits_as_diff, is_patch

SOURCE = "import a\n\n\ndef f(x):\n    y = x + 1\n    z = y * 2\n    return z\n"


def diff_of(before, after, context=3):
    lines = (text.splitlines() for text in (before, after))
    return "\n".join(difflib.unified_diff(*lines, "a", "b", lineterm="", n=context))


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(["a", "b", "  c", "", "-d", "+e", "@f"]), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.sampled_from(["new", "", "a", None])), max_size=5),
    st.integers(0, 3),
)
def test_random_edits_come_round(lines, edits, context):
    changed = [*lines]
    for at, new in edits:
        if at < len(changed):
            changed[at : at + 1] = [] if new is None else [new, "x"]
    before, after = ("".join(f"{line}\n" for line in text) for text in (lines, changed))
    diff = diff_of(before, after, context)
    if changed == lines:
        assert not is_patch(diff) and apply_patch(before, diff) is None
    else:
        assert is_patch(diff) and apply_patch(before, diff) == after


def test_stale_context_is_no_patch():
    diff = diff_of(SOURCE, SOURCE.replace("x + 1", "x + 2"))
    assert apply_patch(SOURCE, diff) == SOURCE.replace("x + 1", "x + 2")
    assert apply_patch(SOURCE.replace("def f(x)", "def f(u)"), diff) is None
    assert apply_patch(SOURCE.replace("x + 1", "x + 3"), diff) is None


def test_lines_that_moved_are_found_where_they_stand_once():
    diff = diff_of(SOURCE, SOURCE.replace("x + 1", "x + 2"))
    moved = f"import b\n{SOURCE}"
    assert apply_patch(moved, diff) == moved.replace("x + 1", "x + 2")
    assert apply_patch(f"# one more line\n{SOURCE}{SOURCE}", diff) is None


def test_what_is_code_is_no_patch():
    assert not is_patch(SOURCE) and not is_patch("--- a\n+++ b\n")
    assert not is_patch(f"{SOURCE}@@ -1 +1 @@\n")
    assert apply_patch(SOURCE, "no diff at all") is None


def test_blocks_that_say_what_to_search_for_are_a_patch():
    """As editing agents answer, each in a fence of its own; no word of it was read."""
    two, one = "    y = x + 1\n    z = y * 2\n", "    z = (x + 1) * 2\n"
    form = "mine.py\n```python\n<<<<<<< SEARCH\n{}=======\n{}>>>>>>> REPLACE\n```\n"
    blocks = [form.format("import a\n", ""), form.format(two, one)]
    made = apply_patch(SOURCE, edits_as_diff("Both steps in one.\n\n" + "\n".join(blocks)))
    assert made == SOURCE.replace("import a\n", "").replace(two, one)
    assert is_patch(edits_as_diff(blocks[1])) and edits_as_diff(SOURCE) == SOURCE
    assert apply_patch(SOURCE, edits_as_diff(blocks[1].replace("x + 1\n", "x + 2\n"))) is None


def test_a_last_line_without_an_end_keeps_none():
    assert apply_patch("a\nb", "@@ -2 +2 @@\n-b\n+c") == "a\nc"
