"""The worker boundary: whatever a kernel does, there is one Evaluation and nothing else happens."""

import asyncio
from pathlib import Path

import pytest
from alone import evaluated, performed
from exhibits import FOLDER as HOSTILE
from exhibits import kernel_file

from accelopt.evaluation import Evaluation, EvaluationRequest, Status
from accelopt.kernels.nki.requests import confirm, submit
from accelopt.sandbox.workers import Call, WorkerPool
from tests.sandbox.calls import Where


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def request(kernel: str | Path = "honest_softmax", **changes) -> EvaluationRequest:
    path = kernel if isinstance(kernel, Path) else kernel_file(kernel)
    fields = {"kernel": str(path), "task": str(HOSTILE / "references" / "softmax.py"), **changes}
    return EvaluationRequest(**fields)


def by(function: str, seconds=20.0) -> Evaluation:
    return performed(Call(f"tests.sandbox.calls:{function}", {}, seconds, 1 << 30))


def test_errors_that_are_not_finite_come_through():
    (check,) = by("be_infinitely_wrong").checks
    assert check.amount == float("inf") and check.limit != check.limit


def test_a_correct_kernel(cache):
    evaluation = evaluated(request(save_fields=("hbm_read_bytes",)), cache)
    assert evaluation.status is Status.CORRECT, evaluation.message
    assert evaluation.profile.metrics["hbm_read_bytes"] > 0
    assert {check.name for check in evaluation.checks} >= {"relative L2 error", "dtype"}
    assert evaluation.isolation and evaluation.seconds > 0


def test_paths_may_be_relative(cache, monkeypatch):
    monkeypatch.chdir(HOSTILE)
    evaluation = evaluated(
        request(Path("kernels/honest_softmax.py"), task="references/softmax.py"), cache=cache
    )
    assert evaluation.status is Status.CORRECT, evaluation.message


def test_a_kernel_that_is_not_there_or_never_compiles(cache, tmp_path):
    kernel = tmp_path / "kernel.py"
    assert evaluated(request(kernel), cache).status is Status.MISSING
    kernel.write_text("raise ValueError('no')\n")
    evaluation = evaluated(request(kernel), cache)
    assert evaluation.status is Status.COMPILE_ERROR
    assert evaluation.isolation  # it was confined too


def test_a_wrong_kernel_says_what_failed_and_where(cache):
    evaluation = evaluated(
        request("zero_output", task=str(HOSTILE / "references/matmul.py")), cache=cache
    )
    assert evaluation.status is Status.WRONG_NUMBERS
    assert "output 0, seed 0" in evaluation.message and "limit" in evaluation.message


def test_a_broken_reference_is_told_from_a_broken_kernel(cache, tmp_path):
    broken = tmp_path / "reference.py"
    broken.write_text(
        "def get_inputs():\n    return 1 / 0\nforward = transform_to_nki_inputs = len\n"
    )
    evaluation = evaluated(request(task=str(broken)), cache)
    assert evaluation.status is Status.BASELINE_FAILED
    assert "get_inputs" in evaluation.message and "ZeroDivisionError" in evaluation.message


def test_hard_limits():
    assert by("sleep_forever", seconds=2.0).status is Status.TIMEOUT
    assert by("eat_memory").status is Status.CRASH


def test_a_bug_of_ours_says_nothing_of_the_kernel_and_what_a_person_can_mend_how():
    bug, lack = by("raise_a_bug"), by("lack_something")
    assert bug.status is lack.status is Status.FAULT and "our own mistake" in bug.traceback
    assert lack.message.startswith("torch is not installed; install it with: pip install")


def test_a_pool_evaluates_at_once_and_in_order(cache):
    async def run() -> list[Evaluation]:
        names = ["honest_softmax", "exits_with_success", "softmax_without_maximum"]
        async with WorkerPool(2, cache=cache) as pool:
            return await asyncio.gather(*(submit(pool, request(name)) for name in names))

    statuses = [evaluation.status for evaluation in asyncio.run(run())]
    assert statuses == [Status.CORRECT, Status.REFUSED, Status.WRONG_NUMBERS]


def test_cancelling_ends_the_child_and_frees_the_worker(cache):
    forever = request("never_ends", compile_seconds=3600, total_seconds=7200)

    async def run() -> Evaluation:
        async with WorkerPool(1, cache=cache) as pool:
            hanging = asyncio.create_task(submit(pool, forever))
            await asyncio.sleep(1)
            hanging.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hanging
            return await submit(pool, request())

    assert asyncio.run(run()).status is Status.CORRECT


def test_warm_calls_fork_where_their_modules_were_imported_with_their_environment():
    """One server for each environment; what cannot be imported is no concern of calls without it."""
    modules = ("tests.sandbox.reads_once", "no_such_module", "tests.sandbox.calls")

    async def run() -> list[Where]:
        async with WorkerPool(2) as pool:
            calls = [
                Call("tests.sandbox.calls:tell_where", {}, 20, 1 << 30, environment, modules)
                for environment in ({"TRITON_READ_ONCE": "a"}, {"TRITON_READ_ONCE": "b"}, None)
            ]
            return list(await asyncio.gather(*(pool.ask(c, Where) for c in (*calls, *calls))))

    told = asyncio.run(run())
    assert [where.read for where in told] == ["a", "b", "nothing"] * 2
    assert len({where.server for where in told}) == 3  # each imported it once
    assert len({where.folder_then for where in told}) == 1
    assert len({where.folder_now for where in told}) == 6  # scratch folders, as TMPDIR says


def test_who_asks_a_closed_pool_is_cancelled():
    async def go():
        pool = WorkerPool(1)
        await asyncio.to_thread(pool.close)
        call = Call("os:getpid", {}, 5, 1 << 30)
        late = [asyncio.create_task(pool.ask(call, Evaluation)) for _ in range(2)]
        await asyncio.wait(late, timeout=30)
        return [task.cancelled() for task in late]

    assert asyncio.run(go()) == [True, True]


def test_closing_a_pool_ends_what_runs(cache):
    async def run() -> Evaluation:
        async with WorkerPool(1, cache=cache) as pool:
            task = asyncio.create_task(submit(pool, request("never_ends")))
            await asyncio.sleep(1)
        return await task

    assert asyncio.run(run()).status is Status.FAULT


@pytest.mark.parametrize(
    ("where", "how", "said"),
    [
        ("import", "time.sleep(3600)", "took longer than 8 s"),
        ("get_inputs", "os._exit(3)", "ended by exit code 3"),
        ("forward", "os._exit(0)", "ended by exit code 0"),
        ("forward", "ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_reference_that_ends_its_process_is_named(tmp_path, where, how, said):
    """Whatever it does to the process that it runs in, it is not the kernel's fault."""
    text = (HOSTILE / "references" / "softmax.py").read_text()
    head = "import ctypes, os, time\n"
    text = f"{head}{how}\n{text}" if where == "import" else head + text
    text = text.replace(f"def {where}(", f"def {where}(*_):\n    {how}\n\ndef unused_{where}(")
    (tmp_path / "reference.py").write_text(text)
    limit = 8.0 if "sleep" in how else 300.0  # a busy machine may take long to start a child
    changed = request(task=str(tmp_path / "reference.py"), total_seconds=limit)
    evaluation = evaluated(changed, cache=str(tmp_path / "cache"))
    assert evaluation.status is Status.BASELINE_FAILED, evaluation
    named = "the reference" if where == "import" else f"{where} of the reference"
    assert evaluation.message.startswith(named) and said in evaluation.message


def test_a_limit_that_a_reference_lowers_is_raised_again_or_named(cache, tmp_path):
    """With four descriptors no child can be started. Who may raise a limit gets it back."""
    text = (HOSTILE / "references" / "softmax.py").read_text()
    lowers = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))"
    (tmp_path / "reference.py").write_text(f"{lowers}\n{text}")
    evaluation = evaluated(request(task=str(tmp_path / "reference.py")), cache)
    named = "it lowers RLIMIT_NOFILE of its process to 4" in evaluation.message
    assert named or evaluation.status is Status.CORRECT, evaluation.message


@pytest.mark.parametrize(
    "does",
    [
        "import threading, time; threading.Thread(target=time.sleep, args=(3600,)).start()",
        "import os; os.fork()",
        "import signal; signal.pthread_sigmask(signal.SIG_SETMASK, range(1, 65)); signal.alarm(1)",
        "import sys; sys.setrecursionlimit(60)",
    ],
)
def test_what_a_reference_leaves_behind_keeps_nobody_waiting(cache, tmp_path, does):
    """A thread, a copy of its process, an alarm, a limit of Python's."""
    text = (HOSTILE / "references" / "softmax.py").read_text()
    (tmp_path / "reference.py").write_text(f"{does}\n{text}")
    evaluation = evaluated(request(task=str(tmp_path / "reference.py")), cache)
    assert evaluation.status is Status.CORRECT, evaluation.message


def test_a_winner_is_measured_again_beside_its_parent(cache):
    async def confirmed(winner, parent):
        async with WorkerPool(1, cache=cache) as pool:
            return await confirm(pool, winner, parent)

    assert not asyncio.run(confirmed(request(), request())).confirmed
    found = asyncio.run(confirmed(request("recurses", compile_seconds=3), request()))
    # Before Python 3.11 each call takes room on the process's stack, and recursion ends with that.
    assert not found.confirmed
    ends = ("timeout", "compile_error: tracing the kernel needs more memory")  # what comes first
    assert found.message.startswith(ends)
    less_work = request("maximum_of_the_first_columns")
    found = asyncio.run(confirmed(less_work, request()))
    assert found.confirmed is (found.speedup > 1.02)
    assert len(found.winner_ms) == len(found.parent_ms) == 5
