"""What attempts taught is found again by problem, bottleneck and method."""

from accelopt.experience import Attempt, Finding, Reflexion, avoided, recall


def finding(problem="silu", resource="dma", method="hoist", change="c", won=True, error=""):
    attempt = Attempt(
        round_num=1, worker_id=0, is_improvement=won, passed_verification=won, error_message=error
    )
    patterns = {"try_patterns": (method,)} if won else {"avoid_patterns": (method,)}
    return Finding(
        problem=problem, resource=resource, method=method, change=change, attempt=attempt,
        reflexion=Reflexion(round_num=1, **patterns),
    )  # fmt: skip


def test_the_same_problem_comes_before_the_same_bottleneck_before_the_same_method():
    rows = [
        finding("rope", "tensor", "widen", "none of it"),
        finding("rope", "tensor", "hoist", "method"),
        finding("rope", "dma", "widen", "bottleneck"),
        finding("rope", "dma", "hoist", "both"),
        finding("silu", "tensor", "widen", "problem"),
        finding("silu", "dma", "hoist", "all"),
    ]
    found = recall(rows, "silu", "dma", ["hoist"])
    assert [row.change for row in found] == ["all", "problem", "both", "bottleneck", "method"]
    assert recall(rows, "silu", "dma", ["hoist"], 2) == found[:2]


def test_the_newest_of_equals_comes_first_and_repetitions_count_once():
    rows = [finding(change="old"), finding(change="new"), finding(change="old")]
    assert [row.change for row in recall(rows, "silu")] == ["old", "new"]
    assert recall([finding("rope")], "silu") == () == recall([finding(resource="")], "x", "")


def test_what_won_since_is_not_avoided():
    lost, won = finding(won=False), finding(won=True)
    assert avoided([lost], "dma") == {"hoist"} and avoided([lost], "tensor") == set()
    assert avoided([lost, won], "dma") == set() and avoided([won, lost], "dma") == {"hoist"}
