"""Methods by name: what is one and what is not; and what transitions say together."""

from math import log

import pytest

from accelopt.errors import ConfigError
from accelopt.evaluation import FORMER_METHODS
from accelopt.experience import Transition
from accelopt.kernels.moves import METHODS
from accelopt.search.method_catalog import (
    DATASET,
    LOST,
    Catalog,
    LabelledStep,
    ReGraph,
    ReGraphDataset,
    Tally,
    build_regraph,
    merge_synonyms,
    read_learned,
)


def names(catalog, *methods, reply=""):
    return [one.method for one in catalog.relabel([LabelledStep(m) for m in methods], reply)]


def test_a_name_is_one_in_whatever_letters_and_with_whatever_fillers():
    catalog = Catalog(["shared memory tiling"])
    assert names(catalog, "Shared-Memory Tiling", "tiling of the shared memory", "Use shared memory, tiling!") == [
        "shared memory tiling", "tiling of the shared memory", "shared memory tiling",
    ]  # fmt: skip
    assert Catalog(["at"]).add("Loop fusion").existed  # by alias
    assert (
        Catalog(["switch_to_mma_or_wgmma"]).add("tensor cores").method == "switch_to_mma_or_wgmma"
    )


@pytest.mark.parametrize(
    ("known", "named"),
    [("shared memory tiling", "tiling"), ("tiling", "register tiling"), ("split", "split_k"),
     ("unroll 4", "unroll 2"), ("vectorize loads", "vectorize stores")],
)  # fmt: skip
def test_near_names_stay_apart(known, named):
    assert Catalog([known]).add(named) == (named, False)


def test_a_reply_is_believed_where_it_is_right():
    steps = ("warp tiling of tiles", "prefetch")
    good = '[{"index": 0, "existed": "yes", "method": "tile"}, {"index": 1, "existed": "no", "method": ""}]'
    assert names(Catalog(["tile"]), *steps, reply=f"Here it is:\n```json\n{good}\n```") == [
        "tile",
        "prefetch",
    ]


@pytest.mark.parametrize(
    "reply",
    ["", "I cannot do that.", "[", '{"index": 0}', "[1, null, []]",
     '[{"index": 7, "existed": "yes", "method": "tile"}]',
     '[{"index": -1, "existed": "yes", "method": "tile"}]',
     '[{"index": true, "existed": "yes", "method": "tile"}]',
     '[{"index": "0", "existed": "yes", "method": "tile"}]',
     '[{"index": 0, "existed": "yes", "method": "tile"}, {"index": 0, "existed": "no"}]',
     '[{"index": 0, "existed": "yes", "method": ""}]',
     '[{"index": 0, "existed": "yes", "method": "what nobody named"}]',
     '[{"index": 0, "existed": "no", "method": "tile"}]'],
)  # fmt: skip
def test_a_reply_that_is_unusable_leaves_it_to_the_rule(reply):
    catalog = Catalog(["tile"])
    assert names(catalog, "prefetch", "Tile", reply=reply) == ["prefetch", "tile"]
    assert catalog.names == ("tile", "prefetch")


def test_a_step_without_a_name_joins_nothing():
    catalog = Catalog(["tile"])
    assert names(catalog, "", "...", "the") == ["", "", ""]
    assert catalog.names == ("tile",)


def row(before, method, gain=None, **other):
    ok, parent = gain is not None, 100.0
    times = {"parent_ms": parent, "mean_ms": parent / 2.718281828459045**gain} if ok else {}
    return Transition(from_method=before, to_method=method, ok=ok, gain=gain, reward=gain,
                      **times, **{"language": "nki", "target": "trn1", **other})  # fmt: skip


ROWS = [
    row("START", "a", 0.1),
    row("START", "b", -0.2),
    row("a", "b", 0.3),
    row("a", "b"),
    row("b", "a", 0.01),
]


def test_aggregates_are_those_worked_out_by_hand():
    graph = build_regraph(ROWS)
    assert {name: (t.count, t.success) for name, t in graph.nodes.items()} == {
        "a": (2, 1),
        "b": (3, 1),
    }
    assert graph.nodes["a"].mean_gain == pytest.approx(0.055)
    assert graph.nodes["b"].mean_gain == pytest.approx((-0.2 + 0.3 + LOST) / 3)
    assert graph.edges["a"]["b"].mean_gain == pytest.approx((0.3 + LOST) / 2)
    assert graph.count("START") == 2 and graph.count("a") == 2 and graph.count("nobody") == 0
    # (sum of gains + 3 * mean of the method) / (count + 3); of one nobody tried, the mean of all
    assert graph.value("a", "b") == pytest.approx((0.3 + LOST + 3 * -0.2) / 5)
    assert graph.value("b", "b") == pytest.approx(-0.2)
    assert graph.value("a", "new") == pytest.approx((0.1 - 0.2 + 0.3 + LOST + 0.01) / 5)
    assert ReGraph().value("a", "b") == 0 == ReGraph().known("a", "b")
    assert 0 < graph.known("a", "a") < graph.known("b", "a") < 1


def test_other_languages_do_not_count_and_the_same_target_counts_doubly():
    rows = [
        row("START", "a", 0.1),
        row("START", "a", 0.4, target="trn2"),
        row("START", "a", 9, language="triton"),
    ]
    [tally] = build_regraph(rows, "nki", "trn2").nodes.values()
    assert tally.count == 3 and tally.mean_gain == pytest.approx((0.1 + 0.4 + 0.4) / 3)


def test_a_dataset_is_read_again_and_malformed_lines_are_counted(tmp_path):
    dataset = ReGraphDataset().append(*ROWS)
    bad = '{"to_method": ""}\n{"to_method": 3}\nno json\n{"from_method": "a"}\n{"to_method": "x", "gain": NaN}\n\n'
    (tmp_path / DATASET).write_text(dataset.to_text() + bad)
    found = read_learned(tmp_path).dataset
    assert found.rows == tuple(ROWS) and found.malformed == 5
    assert found.build().malformed == 5 and found.build().nodes == build_regraph(ROWS).nodes
    (tmp_path / "g.json").write_text(found.build().model_dump_json())
    assert read_learned(tmp_path / "g.json").graph_for("nki", "").nodes == found.build().nodes
    (tmp_path / "wrong.json").write_text("[1]")
    for path, said in (
        (tmp_path / "none", "cannot read"),
        (tmp_path / "wrong.json", "no graph of methods"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_learned(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="there is no regraph_dataset"):
        read_learned(tmp_path / "empty")


def test_moves_by_their_former_names_are_what_they_are_called_now(tmp_path):
    """Rows, findings and graphs of runs before 0.2 name moves as they were called then."""
    old = '{"from_method": "one_launch", "to_method": "heads_together+split_loop", "gain": 0.5, "ok": true}'
    (tmp_path / DATASET).write_text(old)
    [found] = read_learned(tmp_path).dataset.rows
    assert (found.from_method, found.to_method) == ("batch_launches", "pack_gqa_heads+split_k")
    graph = ReGraph(
        nodes={"one_launch": Tally(count=2)}, edges={"START": {"one_launch": Tally(count=2)}}
    )
    (tmp_path / "g.json").write_text(graph.model_dump_json())
    learned = read_learned(tmp_path / "g.json").graph
    assert learned.nodes == {"batch_launches": Tally(count=2)} == learned.edges["START"]
    assert set(FORMER_METHODS.values()) <= set(METHODS) and not set(FORMER_METHODS) & set(METHODS)


def test_synonyms_become_one_and_are_told():
    def tally(count, gain):
        return Tally(count=count, mean_gain=gain)

    graph = ReGraph(
        nodes={"tile": tally(1, 0.1), "The Tile": tally(3, 0.5), "cut": tally(1, 0.3), "tiles": tally(1, 0)},
        edges={"START": {"tile": tally(1, 0.1), "The Tile": tally(3, 0.5)}, "cut": {"cut": tally(1, 0.3)}},
    )  # fmt: skip
    merged, report = merge_synonyms(graph, {"cut": "tile"})
    assert {(one.old, one.new) for one in report} == {("The Tile", "tile"), ("cut", "tile")}
    assert {name: t.count for name, t in merged.nodes.items()} == {"tile": 5, "tiles": 1}
    assert merged.nodes["tile"].mean_gain == pytest.approx((0.1 + 1.5 + 0.3) / 5)
    assert merged.edges["START"]["tile"].mean_gain == pytest.approx(0.4)
    assert merged.edges["tile"]["tile"].count == 1


def test_what_helped_saved_more_than_two_percent_of_the_parents_time():
    [tally] = build_regraph(
        [row("a", "b", log(1 / 0.985)), row("a", "b", log(1 / 0.97))]
    ).nodes.values()
    assert (tally.count, tally.success) == (2, 1)
