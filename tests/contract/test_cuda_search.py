"""In which order a search builds what the rules for CUDA propose, with times that are made up."""

import random

import pytest
from cuda_samples import SAMPLES

from accelopt.evaluation import Case, Evaluation, Profile, Status
from accelopt.kernels.cuda.moves import SHAPES, proposals, proposals_on
from accelopt.nodes import Node, Result, Rewrite, Want
from accelopt.search.strategy import Settings, open_strategy

CASE = Case(problem="planted", values={}, task="reference.py", kernel="kernel.cu")
START = 4.0  # milliseconds


def node(source, ms, parent=None, change=None):
    profile = Profile(latency=ms, min_ms=ms, max_ms=ms, rel_diffs=0.0, target="t", simulated=True)
    verdict = Evaluation(status=Status.CORRECT, profile=profile)
    return Node(CASE, source, verdict, parent, change, "plan_0_0")


def built(sample, builds, gain, strategy, seed):
    """The first actions that are built where every other shape brings some `gain` and all else nothing."""
    search = open_strategy(node(sample.source, START), Settings(strategy=strategy), seed)
    actions = []
    while len(actions) < builds and (job := search.ask()) is not None:
        if job.want is Want.ACTIONS:
            offered = proposals_on(job.node, "", 48, sample.values())
            search.tell(Result(job, tuple(offered)))
            continue
        action, luck = job.action, random.Random(job.action.source)
        shape = START / gain * luck.uniform(0.95, 1.4)
        hint = job.node.latency * luck.uniform(0.99, 1.01)
        ms = shape if action.method in SHAPES else hint
        search.tell(Result(job, nodes=(node(action.source, ms, job.node, action.change),)))
        actions.append(action)
    return actions


@pytest.mark.parametrize("strategy", ["regraph", "mcgs"])
@pytest.mark.parametrize(
    "name, gain", [("matmul_half", 38.0), ("matmul", 7.7), ("row_sums_tree", 1.7), ("add", 1.25)]
)
def test_every_shape_of_a_rule_is_built_before_hints(strategy, name, gain):
    sample = SAMPLES[name]
    offered = proposals(sample.source, "", 48, sample.values())
    for seed in range(3):
        actions = built(sample, 9, gain, strategy, seed)
        shapes = {a.key for a in offered if a.method == actions[0].method}
        assert 5 <= len(shapes) <= 9
        first = actions[: len(shapes)]
        assert {a.key for a in first} == shapes, [a.sentence for a in first]


def test_other_shapes_are_those_of_the_kernel_that_a_rule_began_with():
    sample = SAMPLES["matmul"]
    start = node(sample.source, START)
    tiles = [a for a in proposals_on(start, "", 48, sample.values()) if a.method == "share_tiles"]
    first = node(tiles[0].source, 1.0, start, tiles[0].change)
    second = node(tiles[1].source, 1.0, first, tiles[1].change)
    for kernel in (first, second):
        offered = proposals_on(kernel, "", 48, sample.values())
        assert [action.key for action in offered[: len(tiles)]] == [tile.key for tile in tiles]
    hint = Rewrite(move="launch_bounds", sentence="Declare blocks.")
    hinted = node(tiles[0].source, 1.0, first, hint)
    assert not any(a.method == "share_tiles" for a in proposals_on(hinted, "", 48, sample.values()))


def test_hints_are_left_out_where_they_cannot_matter():
    loops = """#pragma launch grid(8) block(64)
#define TAPS 8
__global__ void f(float* x, const float* y, int n) {
  __shared__ float part[64];
  float v = 0.0f;
  for (int k = 0; k < TAPS; ++k) v += y[k];
  for (int k = 0; k < 16; ++k) v += y[k];
  for (int s = blockDim.x / 2; s > 0; s /= 2) { part[threadIdx.x] += v; __syncthreads(); }
  for (int i = threadIdx.x; i < n; i += 64) x[i] = v + part[i % 64];
}
"""
    unrolled = [a for a in proposals(loops, "", 48) if a.method == "unroll_loops"]
    assert {a.change.parameters["loop"] for a in unrolled} == {0}
    assert all(
        f"  #pragma unroll {a.change.parameters['factor']}\n  for (int i = threadIdx.x" in a.source
        for a in unrolled
    )
    for name in ("matmul_half", "row_sums_tree", "add"):
        sample = SAMPLES[name]
        best = proposals(sample.source, "", 48, sample.values())[0]
        again = {a.method for a in proposals(best.source, "", 48, sample.values())}
        assert not again & {"unroll_loops", "cache_policy_cg"}
