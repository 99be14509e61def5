"""What a planner is told of changes that were tried: on a kernel, before it and beside it."""

from timed_kernels import correct

from accelopt.evaluation import Case, Evaluation, Status
from accelopt.nodes import Job, Node, Result, Rewrite, Want
from accelopt.stages.planning import _closed, tried_beside, tried_on

CASE = Case(problem="p", values={}, task="t", kernel="k")


def made(
    parent, source, latency=None, move="hoist", status=Status.COMPILE_ERROR, message="t3 at line 4"
):
    verdict = correct(latency) if latency else Evaluation(status=status, message=message)
    change = Rewrite(move=move, parameters={"of": source}, sentence=f"{move}.") if parent else None
    return Node(CASE, f"def {source}(): pass", verdict, parent, change)


def of(node, *nodes):
    return Result(Job(0, 0, Want.DEVELOP, node), nodes=nodes)


def test_what_lost_on_parents_siblings_and_cousins_is_told_with_where():
    """Issue 41: and what gained there is not told as a failure, nor the step that led here."""
    start = made(None, "start", 4.0)
    parent, sibling = made(start, "parent", 2.0), made(start, "sibling", 3.0)
    lost, broken = made(start, "lost", 5.0), made(parent, "broken")
    here, cousin = made(parent, "here", 1.0), made(sibling, "cousin", 3.5)
    own = made(here, "own", 0.5)
    history = [
        of(start, parent, sibling, lost),
        of(parent, here, broken),
        of(sibling, cousin),
        of(here, own),
    ]
    told = {
        one.change.key: one.outcome
        for one in (*tried_on(here, history), *tried_beside(here, history))
    }
    assert set(told) == {one.change.key for one in (own, broken, lost, cousin)}
    assert (
        "before this one" in told[broken.change.key] and "before this one" in told[lost.change.key]
    )
    assert "beside this one" in told[cousin.change.key] and "2.000 times" in told[own.change.key]


def test_a_method_closes_by_kernels_that_fail_alike_and_not_by_faults_of_ours():
    start = made(None, "start", 4.0)
    again = made(start, "one", message="t3 at line 4")
    for two, closed in (
        (made(start, "two", message="t9 at line 17"), ["hoist"]),
        (made(start, "one", message="t3 at line 4"), []),  # the same kernel once more
        (made(start, "two", message="another reason"), []),
        (made(start, "two", move="fuse"), []),
    ):
        assert _closed([of(start, again), of(start, two)]) == closed
    faults = [made(start, name, status=Status.FAULT, message="the disk is full") for name in "abc"]
    assert _closed([of(start, *faults)]) == []
