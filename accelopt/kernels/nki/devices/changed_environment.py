"""Other conditions for a kernel's Python: another date, another home, another user.

Only ever changed in a confined child process, before the kernel's file is loaded. What differs between
two processes by itself (drawn bytes, hashes of strings, addresses, process ids) needs no change.
"""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

DAY = 86_400.0
SHIFT = 397.27 * DAY  # another year, month, weekday and hour


def change(again: int) -> None:
    """Changes this process's conditions to the ones that `again` numbers; 0 leaves them."""
    if not again:
        return
    home = f"/home/other{again}"
    os.environ.update(
        HOME=home, USER=f"other{again}", LOGNAME=f"other{again}", PWD=home, TZ=f"UTC{again}",
        LANG="C", HOSTNAME=f"host{again}",
    )  # fmt: skip
    _shift_clocks(again * SHIFT)


def _shift_clocks(seconds: float) -> None:
    now, now_ns = time.time, time.time_ns
    local, utc, text = time.localtime, time.gmtime, time.strftime
    changed: dict[str, Any] = {
        "time": lambda: now() + seconds,
        "time_ns": lambda: now_ns() + int(seconds * 1e9),
        "localtime": lambda at=None: local(now() + seconds if at is None else at),
        "gmtime": lambda at=None: utc(now() + seconds if at is None else at),
        "strftime": lambda form, at=None: text(form, at or local(now() + seconds)),
        "ctime": lambda at=None: time.asctime(local(now() + seconds if at is None else at)),
    }
    vars(time).update(changed)
    vars(datetime).update(datetime=_later(seconds), date=_later_day(seconds))


def _later(seconds: float) -> type[datetime.datetime]:
    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return super().now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

        @classmethod
        def utcnow(cls) -> Any:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    return Later


def _later_day(seconds: float) -> type[datetime.date]:
    class LaterDay(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return super().today() + datetime.timedelta(seconds=seconds)

    return LaterDay
