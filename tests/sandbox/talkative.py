"""Handlers that the conversation tests ask."""

import ctypes
import os
import time
from pathlib import Path

from accelopt.sandbox.serving import Message


class Add(Message):
    first: int
    second: int


class Sum(Message):
    value: int


class Misbehave(Message):
    how: str


class Text(Message):
    value: str = ""


class Unknown(Message):
    pass


def handlers(payload):
    if payload.get("fails"):
        raise ValueError("no handlers today")
    return {Add: lambda asked: Sum(value=asked.first + asked.second + payload["base"]),
            Misbehave: misbehave, Text: lambda asked: Text(value=asked.value * 2)}  # fmt: skip


def misbehave(asked):
    if asked.how == "raise":
        raise RuntimeError("on purpose\x1b[31m")
    if asked.how == "exit":
        os._exit(3)
    if asked.how == "crash":
        ctypes.string_at(0)
    if asked.how == "hang":
        time.sleep(60)
    if asked.how == "environment":
        return Text(value=" ".join(sorted(os.environ)))
    if asked.how == "proc":
        Path(f"/proc/self/task/{os.getpid()}/comm").write_text("named")
        listed = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
        return Text(value=" ".join([str(os.getpid()), *listed]))
    if asked.how == "lie":
        return Text(value="not a sum")
    if asked.how == "flood":
        while True:
            print("x" * 65536)
    return Text()
