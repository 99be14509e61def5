"""What methods brought is left by every run, and bears on the next: by its folder or by a database."""

import asyncio
import json

import pytest
import toy
from drive import SETTINGS, run_toy

from accelopt.search.method_catalog import DATASET, GRAPH, ReGraph, read_learned
from accelopt.stages.experience import METRICS
from accelopt.stages.jobs import Knowledge
from accelopt.stages.run import Watcher
from accelopt.stages.run_archive import REGRAPH
from accelopt.store import read_entries

REGRAPHS = SETTINGS._replace(strategy="regraph", evaluations=8)


def run(folder, **options):
    return asyncio.run(run_toy(folder, **{"settings": REGRAPHS, **options}))


def learned(folder):
    [entry] = [e for e in read_entries(folder / "journal.jsonl") if e.kind == REGRAPH]
    return ReGraph.model_validate(entry.value)


@pytest.mark.parametrize("strategy", ["regraph", "mcgs", "beam", "random"])
def test_a_run_leaves_a_row_for_each_evaluation(tmp_path, strategy):
    _, shop = run(tmp_path, settings=REGRAPHS._replace(strategy=strategy))
    rows = read_learned(tmp_path).dataset.rows
    assert len(rows) == shop.evaluations.made - 1  # but the baseline
    assert {row.language for row in rows} == {"toy"} and rows[0].from_method == "START"
    assert {row.to_method for row in rows} == {"divide"}
    graph = ReGraph.model_validate_json((tmp_path / GRAPH).read_text())
    assert graph.nodes["divide"].count == len(rows)


def test_several_problems_share_a_file_and_a_continued_run_writes_the_same(tmp_path):
    starts = [toy.start(tmp_path / "start", 100.0), toy.start(tmp_path / "start", 97.0, "other")]
    run(tmp_path, starts=starts)
    text = (tmp_path / DATASET).read_text()
    assert len({json.loads(line)["kernel"] for line in text.splitlines()}) == 2
    run(tmp_path, starts=starts)
    assert (tmp_path / DATASET).read_text() == text


def test_another_run_is_learned_from_by_its_folder_once_and_for_all(tmp_path):
    run(tmp_path / "first")
    known = Knowledge(learned=read_learned(tmp_path / "first"))
    run(tmp_path / "second", known=known)
    first = ReGraph.model_validate_json((tmp_path / "first" / GRAPH).read_text())
    graph = learned(tmp_path / "second")
    assert graph.nodes["divide"].count == 2 * first.nodes["divide"].count  # of the same target
    run(tmp_path / "second")  # continued, without that folder
    assert learned(tmp_path / "second") == graph


def test_a_database_carries_transitions_from_run_to_run(tmp_path):
    place = str(tmp_path / "k.sqlite")
    run(tmp_path / "first", database=place)
    assert learned(tmp_path / "first").nodes == {}
    other = [toy.start(tmp_path / "start", 50.0, "other")]
    run(tmp_path / "second", database=place, starts=other)
    of_first = ReGraph.model_validate_json((tmp_path / "first" / GRAPH).read_text())
    of_base = learned(tmp_path / "second")
    assert of_base.nodes["divide"].count == 2 * of_first.nodes["divide"].count
    assert of_base.nodes["divide"].mean_gain == pytest.approx(of_first.nodes["divide"].mean_gain)
    assert set(of_base.edges) == set(of_first.edges)


def test_a_graph_search_leaves_its_events_its_trace_and_a_report(tmp_path):
    told = []
    watcher = Watcher(reported=lambda case, report: told.append((case, report)))
    [outcome], shop = run(tmp_path, watcher=watcher)
    folder = tmp_path / "toy_N4"
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [event["t"] for event in events] == list(range(len(events)))
    assert sum(event["ok"] for event in events) == outcome.correct
    state = json.loads((folder / "search_state.json").read_text())
    assert state["root_state_hash"] in state["states"] and "events" not in state
    assert {event["child_state"] for event in events} - {None} <= set(state["states"])
    trace = (folder / "trace.md").read_text()
    assert trace.count("new best") >= 1 and trace.rstrip().endswith(
        "Ended: 8 evaluations are spent."
    )
    report = json.loads((folder / METRICS).read_text())
    assert report["correctness_rate"]["tried"] == shop.evaluations.made - 1 == 8
    assert report["speedup_at"]["5"] >= 1 and "10" not in report["speedup_at"]
    [(case, said)] = told
    assert case == "toy_N4" and "compiled 8 of 8 (68% to 100%)" in said
