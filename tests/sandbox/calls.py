"""What workers are asked to do in tests: imported in a child, where no other test is."""

import tempfile
import time

from accelopt.errors import MissingExtra
from accelopt.evaluation import Check, Evaluation, Row, Status


def sleep_forever(payload):
    time.sleep(3600)


def eat_memory(payload):
    kept = []
    while True:
        kept.append(b"x" * (64 << 20))


def raise_a_bug(payload):
    raise KeyError("our own mistake")


def lack_something(payload):
    print("on the way")
    raise MissingExtra("torch", "flashinfer")


class Where(Row):
    """The process that forked this one, what a module had read when it was imported, and the folder for
    temporary files that it was told then and that this process is told now."""

    server: int
    read: str
    folder_then: str
    folder_now: str


def tell_where(payload):
    from tests.sandbox import reads_once

    return Where(
        server=reads_once.IMPORTED_IN,
        read=reads_once.READ,
        folder_then=reads_once.FOLDER,
        folder_now=tempfile.gettempdir(),
    )


def be_infinitely_wrong(payload):
    found = Check(name="largest error", passed=False, amount=float("inf"), limit=float("nan"))
    return Evaluation(status=Status.WRONG_NUMBERS, checks=(found,))
