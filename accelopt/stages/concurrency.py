"""Concurrent work that ends together: when one part fails, the others are ended, not orphaned."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


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
