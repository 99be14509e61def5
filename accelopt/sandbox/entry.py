"""The child process: `python -I entry.py`, a job as one JSON line on standard input.

Three processes at most, each with one duty:

- the keeper holds the caller's end of standard input: when it closes, everything below is killed;
- the first process of the new process namespace, where there is one, whose end is everybody's end;
- the worker, which gives up what it can and calls the job's entry.

The result goes to the first descriptor named on the command line: one line of JSON on the sandbox,
written before any of the job's code runs, then whatever the entry writes. From the second come the
requests of a job that serves. The keeper's exit code is the worker's, or 128 plus the signal that
ended it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accelopt.sandbox.policy import ChildJob

_FAILED = 1


def main(result: int, requests: int) -> int:
    """Read the job, run it in a confined process, and return that process's exit code."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started it may block what ends it
    line = _first_line(0)
    sys.path[:0] = json.loads(line)["search_path"].split(os.pathsep)
    from accelopt.sandbox import confinement, linux_calls

    job = _job(line)
    namespaces = job.policy.confined and not job.inside
    entered = confinement.enter_namespaces(job.policy) if namespaces else []
    if linux_calls.LINUX:
        linux_calls.prctl(linux_calls.PR_SET_CHILD_SUBREAPER, 1)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(wake)
        os.close(woken)
        _end_with_parent()
        if "process" in entered:
            _be_first_process(job, entered, result, requests)
        _work(job, entered, result, requests)
    os.close(result)
    os.close(requests)
    return _keep(child, wake)


def _first_line(descriptor: int) -> bytes:
    """Up to the newline and not a byte further: the rest of the pipe is the lifeline."""
    data = bytearray()
    while chunk := os.read(descriptor, 65536):
        data += chunk
        if chunk.endswith(b"\n"):
            break
    return bytes(data)


def _job(line: bytes) -> ChildJob:
    from accelopt.sandbox.policy import ChildJob, Limits, Policy

    fields = json.loads(line)
    policy: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in fields.pop("policy").items()
    }
    limits = Limits(**fields.pop("limits"))
    fields["inside"] = tuple(fields["inside"])
    return ChildJob(policy=Policy(**policy), limits=limits, **fields)


def _end_with_parent() -> None:
    from accelopt.sandbox import linux_calls

    if linux_calls.LINUX:
        linux_calls.prctl(linux_calls.PR_SET_PDEATHSIG, signal.SIGKILL)


def _keep(child: int, wake: int) -> int:
    """Wait for the child or for the caller's end, then leave no descendant alive."""
    code: int | None = None
    while code is None:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready and not os.read(0, 4096):
            code = 128 + signal.SIGKILL
            break
        code = _reap(child)
    _kill_descendants()
    return code


def _reap(child: int) -> int | None:
    """Collect the dead; the exit code of `child` when it is among them."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == 0:
                break
            if ended == child:
                code = _exit_code(status)
    return code


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _kill_descendants() -> None:
    """Kill children until none is left: orphans of any depth come to this process to be reaped."""
    while children := _children():
        for child in children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    """This process's children, by Linux's /proc."""
    me = os.getpid()
    with contextlib.suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{me}/task/{me}/children").read_text().split()]
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The fields after the command's name, which may hold anything but ends with ")".
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == me:
                found.append(int(folder.name))
    return found


def _be_first_process(job: ChildJob, entered: list[str], result: int, requests: int) -> None:
    """Start the worker and collect whatever dies; the kernel kills the rest when this returns."""
    if job.policy.processes:
        from accelopt.sandbox import confinement

        confinement.own_proc()
    worker = os.fork()
    if worker == 0:
        _end_with_parent()
        _work(job, entered, result, requests)
    os.close(result)
    os.close(requests)
    code = None
    while code is None:
        ended, status = os.waitpid(-1, 0)
        if ended == worker:
            code = _exit_code(status)
    os._exit(code)


def _work(job: ChildJob, entered: list[str], result: int, requests: int) -> None:
    """Confine this process, say how, and call the entry; never returns."""
    code = _FAILED
    try:
        from accelopt.sandbox import confinement, starting

        if job.policy.confined:
            starting.leave_server()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        confinement.set_limits(job.limits)
        held = confinement.confine(job.policy) if job.policy.confined else []
        with os.fdopen(result, "wb") as channel:
            words = list(job.inside)
            if entered:
                words.append(f"namespaces ({', '.join(entered)})")
            channel.write(json.dumps([*words, *held, "limits"]).encode() + b"\n")
            channel.flush()
            module, _, name = job.entry.partition(":")
            function = getattr(importlib.import_module(module), name)
            if job.serves:
                from accelopt.sandbox.serving import serve

                with os.fdopen(requests, "rb") as asked:
                    serve(asked, channel, function(job.payload))
            else:
                os.close(requests)
                function(job.payload, channel)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else _FAILED
    except BaseException as error:
        if isinstance(error, OSError) and error.errno == errno.EBADF:
            print("the process closed what it was to answer through", file=sys.stderr)
        else:
            traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
