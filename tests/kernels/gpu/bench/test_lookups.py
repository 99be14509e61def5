"""Programs that find the sequence of a query by themselves, however the host made a table of it."""

import json

import pytest
from flb_traces import installed
from plain_kernels import BY_SEQUENCE
from test_moved_results import interpreted

from accelopt.kernels.triton.moves import lookups
from accelopt.kernels.triton.moves.propose import proposals
from accelopt.kernels.triton.moves.source import Source

FIRST = "    sequences = torch.empty("
TABLE = BY_SEQUENCE[BY_SEQUENCE.index(FIRST) : BY_SEQUENCE.index("    by_sequence_kernel[(")]
EMPTY = "sequences = torch.empty(q.shape[0], dtype=torch.int32, device=q.device)\n"
COUNT = "torch.arange(qo_indptr.shape[0] - 1, device=q.device, dtype=torch.int32)"
PLACES = "torch.arange(q.shape[0], device=q.device)"
LOOP = "for i in range(qo_indptr.numel() - 1):\n    "

FORMS = {
    "slices": TABLE,
    "slices by item": f"{EMPTY}{LOOP}sequences[qo_indptr[i].item():qo_indptr[i + 1].item()] = i\n",
    "filled slices": (
        f"{EMPTY}at = qo_indptr.tolist()\n{LOOP}sequences[at[i]:at[i + 1]].fill_(i)\n"
    ),
    "empty ones passed over": (
        f"{EMPTY}{LOOP}n = int(qo_indptr[i + 1] - qo_indptr[i])\n    if n == 0:\n        continue\n"
        "    sequences[qo_indptr[i]:qo_indptr[i + 1]] = i\n"
    ),
    "a list": (
        f"numbers = []\nat = qo_indptr.tolist()\n{LOOP}numbers.extend([i] * (at[i + 1] - at[i]))\n"
        "sequences = torch.tensor(numbers, dtype=torch.int32, device=q.device)\n"
    ),
    "repeated by method": (
        f"lengths = qo_indptr[1:] - qo_indptr[:-1]\nsequences = {COUNT}.repeat_interleave(lengths)\n"
    ),
    "repeated": (
        "lengths = torch.diff(qo_indptr).long()\n"
        f"sequences = torch.repeat_interleave({COUNT}, lengths, output_size=q.shape[0]).int()\n"
    ),
    "repeated without numbers": (
        "wide = qo_indptr.to(torch.int64)\n"
        "sequences = torch.repeat_interleave(wide[1:] - wide[:-1])\n"
        "sequences = sequences.to(torch.int32).contiguous()\n"
    ),
    "searched": (
        f"places = {PLACES}\n"
        "sequences = torch.searchsorted(qo_indptr[1:].contiguous(), places, right=True)\n"
    ),
    "searched from the first": (
        f"sequences = (torch.searchsorted(qo_indptr, {PLACES}.int(), side='right') - 1).clamp_(0, "
        "qo_indptr.shape[0] - 2).int()\n"
    ),
    "buckets": f"sequences = torch.bucketize({PLACES}, qo_indptr[1:-1], right=True)\n",
    "buckets from the first": (
        f"sequences = torch.bucketize({PLACES}, qo_indptr, out_int32=True, right=True) - 1\n"
    ),
    "counted": f"sequences = ({PLACES}[:, None] >= qo_indptr[None, 1:]).sum(dim=1)\n",
}
KERNELS = {
    "as it is": {},
    "masked": {"+ query)\n": "+ query, mask=query >= 0, other=0).to(tl.int32)\n"},
    "by a pointer": {
        "sequence = tl.load(sequence_ptr + query)": "own_ptr = sequence_ptr + query\n"
        "    sequence = tl.load(own_ptr)"
    },
    "without the offsets": {
        "sequence_ptr, qo_indptr_ptr, kv": "sequence_ptr, kv",
        "first = tl.load(qo_indptr_ptr + sequence)": "first = 0",
        "(tl.load(qo_indptr_ptr + sequence + 1) - first) + query": "1",
        "sequences, qo_indptr, kv": "sequences, kv",
    },
}


def written(form, kernel=()):
    lines = form if form == TABLE else "".join(f"    {line}\n" for line in form.splitlines())
    text = BY_SEQUENCE.replace(TABLE, lines)
    for old, new in dict(kernel).items():
        assert old in text
        text = text.replace(old, new)
    return text


def searching(text):
    source = Source(text)
    return lookups.found_sequence(source, source.launches[0])


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_left_of_a_table(form):
    text = searching(written(FORMS[form]))
    host = text[text.index("def run(") :]
    for word in (
        "sequences",
        "arange",
        "repeat",
        "search",
        "bucket",
        "tolist",
        "item",
        "cpu",
        "for ",
    ):
        assert word not in host.replace("SEARCH", "").replace("sequence_count", "")
    assert "sequence_ptr" not in text
    assert "sequence_count=qo_indptr.shape[0] - 1" in host
    assert "SEARCH_STEPS=(qo_indptr.shape[0] - 2).bit_length()" in host


@pytest.mark.parametrize(
    "change",
    [
        ("right=True)", "right=False)"),
        (", right=True)", ")"),
        ("qo_indptr[1:].contiguous()", "qo_indptr"),
        ("qo_indptr[1:].contiguous()", "qo_indptr[2:]"),
        (f"places = {PLACES}", f"places = 1 + {PLACES}"),
        (f"places = {PLACES}", "places = kv_indptr"),
        ("right=True)\n", "right=True)\n    sequences[0] = 1\n"),
        ("right=True)\n", "right=True)\n    assert sequences.max() < 4\n"),
        ("return output, lse", "return output, lse, sequences"),
        ("+ query)\n", "+ query)\n    tl.store(sequence_ptr + query, 0)\n"),
        ("+ query)\n", "+ query * 2)\n    other = sequence_ptr\n"),
    ],
)
def test_other_tables_stay(change):
    text = written(FORMS["searched"])
    assert change[0] in text and searching(text) is not None
    assert searching(text.replace(*change)) is None


def test_what_others_read_stays():
    form = FORMS["repeated by method"]
    text = searching(written(form).replace("return output, lse", "return output, lse, lengths"))
    assert "lengths = qo_indptr[1:] - qo_indptr[:-1]" in text
    assert "repeat_interleave" not in text


def test_offsets_that_a_kernel_does_not_have_are_given_to_it():
    text = searching(written(FORMS["searched"], KERNELS["without the offsets"]))
    assert "sequence_offsets_ptr=qo_indptr.contiguous()" in text


def test_the_first_proposals_have_no_table():
    for form in ("slices", "repeated by method", "buckets"):
        first, *_ = proposals(written(FORMS[form]), 1)
        assert "find_sequence" in first.change.move
        assert "sequences" not in first.source


@pytest.mark.skipif(not installed("torch", "triton"), reason="torch and triton are not installed")
def test_programs_find_what_the_table_said():
    texts = [written(form) for form in FORMS.values()]
    changed = [written(FORMS["searched"], kernel) for kernel in list(KERNELS.values())[1:3]]
    found = [*map(searching, texts), *map(searching, changed)]
    # The tables themselves as well: a form that makes another table would prove nothing.
    sources = [BY_SEQUENCE, *texts[1:], *found]
    errors = interpreted("alike.py", [json.dumps(source) for source in sources])
    assert len(errors) == len(sources) - 1
    assert max(errors) == 0.0, dict(zip([*FORMS][1:], errors))
