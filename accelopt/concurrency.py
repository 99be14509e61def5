"""Concurrent work of ours: in a thread it ends as a result or as an exception, within a limit of time; a
fault in one proposer ends that proposer; when one part of several fails, the others are ended too."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ParamSpec, Self, TypeVar

from accelopt.errors import AcceloptError, internal_error
from accelopt.time_limits import THREAD_SECONDS

P = ParamSpec("P")
T = TypeVar("T")


class Closing:
    """What closes itself at the end of a `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave nothing open; once is enough."""


def guarded(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of `function`. A StopIteration that leaves it is an InternalError: asyncio cannot
    set it on a future, and whoever awaits that future would wait for ever."""
    try:
        return function(*arguments, **named)
    except StopIteration as error:
        raise internal_error(error, f"running {function.__qualname__}") from error


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of `function`, called in a thread of its own with the caller's context variables.

    Raises what it raises, and InternalError when it takes longer than THREAD_SECONDS; the thread is
    then left behind, and ends with the process at the latest.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return  # nobody waits any more
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, error = None, None
        try:
            result = guarded(function, *arguments, **named)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), daemon=True).start()
    try:
        # Before Python 3.12 wait_for loses a cancellation that comes together with the answer.
        await asyncio.wait([answer], timeout=THREAD_SECONDS)
        if answer.done():
            return answer.result()
    finally:
        answer.cancel()
    late = TimeoutError(f"it took longer than {THREAD_SECONDS:g} s")
    raise internal_error(late, f"running {function.__qualname__}")


async def contained(work: Awaitable[T], doing: str, failed: Callable[[str], T]) -> T:
    """The result of `work`, which is one proposer's; where it fails by a fault of ours, what `failed`
    makes of the sentence that says so. Errors that the user can mend are raised."""
    try:
        return await work
    except (AcceloptError, OSError):
        raise
    except Exception as error:  # the one boundary between a proposer and the run
        return failed(str(internal_error(error, doing)))


async def run_together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of `work` in its order. The first exception cancels the rest and is raised."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def attended(work: Coroutine[Any, Any, T], watch: Coroutine[Any, Any, object]) -> T:
    """The result of `work`. `watch` goes on beside it until then; its exception ends both."""
    task, beside = asyncio.ensure_future(work), asyncio.ensure_future(watch)
    try:
        await asyncio.wait((task, beside), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            beside.result()
        return await task
    finally:
        task.cancel()
        beside.cancel()
        await asyncio.gather(task, beside, return_exceptions=True)
