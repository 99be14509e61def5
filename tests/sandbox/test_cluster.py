"""Evaluations on a real Ray cluster of two nodes (`make test-cluster`): the same verdicts as here,
also when a node dies in their midst."""

import asyncio
import json
import subprocess
import sys
import time

import numpy as np
import pytest
from exhibits import FOLDER, kernel_file, reference_file
from small_problem import benchmark

from accelopt.caches import cache_with, default_cache, package_key, secret_of, trials_folder
from accelopt.errors import ConfigError
from accelopt.evaluation import Evaluation, EvaluationRequest, Status
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.referee.trials import HIDDEN, TrialStore
from accelopt.kernels.nki.requests import call_for, submit
from accelopt.sandbox import cluster as cluster_module
from accelopt.sandbox.cluster import ClusterPool, on_node, placed
from accelopt.sandbox.workers import WorkerPool

KERNELS = ["honest_softmax", "exits_with_success", "softmax_without_maximum", "recurses"]


def request(kernel):
    task = reference_file(kernel)
    return EvaluationRequest(kernel=str(kernel_file(kernel)), task=str(task), compile_seconds=20)


def without_seconds(evaluation):
    return evaluation.model_copy(update={"seconds": 0.0})


def test_texts_that_are_paths_are_replaced_wherever_they_stand():
    payload = {"request": {"kernel": "/a/k.py", "fields": ["/a/k.py", 3]}, "cache": "/c"}
    assert placed(payload, {"/a/k.py": "/b/k.py"}) == {
        "request": {"kernel": "/b/k.py", "fields": ["/b/k.py", 3]},
        "cache": "/c",
    }


def test_a_kernel_meets_the_same_hidden_inputs_on_every_node(tmp_path, monkeypatch):
    here, node = tmp_path / "here", tmp_path / "node"
    ours = secret_of(trials_folder(here))
    monkeypatch.setenv("XDG_CACHE_HOME", str(node))
    monkeypatch.setattr(
        cluster_module, "_core", lambda: None
    )  # Ray's answer to whoever asks for none
    theirs = secret_of(trials_folder(default_cache()))
    assert ours != theirs
    call = call_for(request("honest_softmax"), str(here))
    found = on_node(call, Evaluation, {}, (str(here), ours), package_key())
    assert found.status is Status.CORRECT
    guest = cache_with(ours, default_cache())
    drawn = [TrialStore(trials_folder(cache)) for cache in (here, guest, default_cache())]
    task = Reference(FOLDER / "references" / "softmax.py")
    first, second, other = (store.get(task, HIDDEN).inputs[0] for store in drawn)
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert (trials_folder(guest) / "secret").stat().st_mode & 0o077 == 0


def test_a_node_that_shares_the_cache_uses_it(tmp_path):
    assert cache_with(secret_of(trials_folder(tmp_path)), tmp_path) == tmp_path


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="make test-cluster installs it")
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    started.add_node(num_cpus=1)
    yield started
    started.shutdown()


async def all_of(pool, kernels):
    async with pool:
        return await asyncio.gather(*(submit(pool, request(kernel)) for kernel in kernels))


@pytest.mark.slow
def test_verdicts_are_those_of_this_machine(cluster):
    there = asyncio.run(all_of(ClusterPool(cluster.address), KERNELS))
    here = asyncio.run(all_of(WorkerPool(2), KERNELS))
    assert [e.status for e in here][:3] == [
        Status.CORRECT,
        Status.REFUSED,
        Status.WRONG_NUMBERS,
    ]
    assert list(map(without_seconds, there)) == list(map(without_seconds, here))


@pytest.mark.slow
def test_a_node_that_dies_costs_a_retry_and_nothing_else(cluster):
    doomed = cluster.add_node(num_cpus=2)

    async def go():
        async with ClusterPool(cluster.address) as pool:
            tasks = [asyncio.create_task(submit(pool, request(KERNELS[n % 3]))) for n in range(9)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(cluster.remove_node, doomed, False)
            return await asyncio.gather(*tasks)

    expected = [Status.CORRECT, Status.REFUSED, Status.WRONG_NUMBERS] * 3
    assert [evaluation.status for evaluation in asyncio.run(go())] == expected


def decisions(run):
    """What a run's journal says, without what a clock says."""

    def timeless(value):
        if isinstance(value, dict):
            return {key: timeless(item) for key, item in value.items() if key != "seconds"}
        return [timeless(item) for item in value] if isinstance(value, list) else value

    lines = (run / "journal.jsonl").read_text().splitlines()
    return sorted(json.dumps(timeless(json.loads(line)), sort_keys=True) for line in lines)


@pytest.mark.slow
def test_a_run_decides_the_same_on_a_cluster_one_of_whose_nodes_dies(cluster, tmp_path):
    own = benchmark(tmp_path / "own")
    doomed = cluster.add_node(num_cpus=2)

    def run(name, *options):
        command = [
            sys.executable, "-m", "accelopt", "optimize", own / "kernels" / "silu.py",
            "--reference", own / "reference" / "silu.py", "--out", tmp_path / name,
            "--iterations", "2", "--plans", "2", "--samples", "1", *options,
        ]  # fmt: skip
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)

    there = run("there", "--cluster", cluster.address)
    journal = tmp_path / "there" / "journal.jsonl"
    while there.poll() is None and not (journal.exists() and journal.stat().st_size):
        time.sleep(0.1)
    cluster.remove_node(doomed, False)
    shown, _ = there.communicate()
    assert there.returncode == 0, shown
    here = run("here")
    shown, _ = here.communicate()
    assert here.returncode == 0, shown
    assert decisions(tmp_path / "there") == decisions(tmp_path / "here")
    assert len(decisions(tmp_path / "here")) > 5


@pytest.mark.slow
def test_cancelling_ends_the_child_on_the_node(cluster):
    async def go():
        async with ClusterPool(cluster.address) as pool:
            hanging = asyncio.create_task(submit(pool, request("never_ends")))
            await asyncio.sleep(10)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return await asyncio.gather(*(submit(pool, request(KERNELS[0])) for _ in range(2)))

    both = asyncio.run(go())
    assert [evaluation.status for evaluation in both] == [Status.CORRECT, Status.CORRECT]


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_one_sentence():
    pytest.importorskip("ray", reason="make test-cluster installs it")
    with pytest.raises(ConfigError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        ClusterPool("127.0.0.1:1")
