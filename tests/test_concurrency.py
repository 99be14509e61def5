"""Our own work in threads ends as a result or as an exception that is read, never as a wait without end."""

import asyncio
import contextvars
import threading
import time

import pytest

from accelopt.concurrency import contained, in_thread
from accelopt.errors import AcceloptError, InternalError

WHO = contextvars.ContextVar("WHO", default="nobody")


def soon(work):
    """The result of a coroutine that must not wait for ever."""
    return asyncio.run(asyncio.wait_for(work, 20))


def test_a_result_and_the_context_of_the_caller():
    async def work():
        WHO.set("me")
        return await in_thread(lambda n: (n + 1, WHO.get()), 1), threading.active_count()

    assert soon(work())[0] == (2, "me")


def test_a_stop_iteration_is_an_internal_error_with_its_place():
    """asyncio refuses to set StopIteration on a future (CPython 3.11, `Future.set_exception`), and
    its `to_thread` then never ends."""
    with pytest.raises(InternalError, match=r"accelopt/concurrency\.py:\d+, .*: StopIteration"):
        soon(in_thread(lambda: next(iter(()))))


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("late"), SystemExit(3)])
def test_any_other_exception_is_raised_as_it_is(error):
    def fail():
        raise error

    async def work():
        try:
            await in_thread(fail)
        except BaseException as raised:
            return raised

    assert soon(work()) is error


def test_a_fault_ends_its_own_proposer_and_what_the_user_can_mend_ends_the_run():
    async def fails(error):
        raise error

    said = soon(contained(fails(KeyError("axis")), "planning", str))
    assert said.startswith("internal error of AccelOpt while planning at ")
    assert said.endswith("no fault of the kernel: KeyError: 'axis'")
    for error in (AcceloptError("a sentence"), OSError("no space")):
        with pytest.raises(type(error)):
            soon(contained(fails(error), "planning", str))


def test_a_cancellation_that_comes_with_the_answer_is_not_lost():
    """Evidence: a worker whose queue was empty in the moment of its deadline was asked for ever (Python 3.11,
    gh-86296)."""

    async def both_at_once():
        ready = threading.Event()
        task = asyncio.create_task(in_thread(ready.wait))
        await asyncio.sleep(0.05)
        ready.set()
        time.sleep(0.1)
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(both_at_once())
