"""Work on the nodes of a Ray cluster: the same calls, limits and results as on one machine.

A node does a call as this machine would (`workers.perform`): in a confined child of its own, with hard
limits. What the call reads travels with it, and what comes back names the caller's paths, so a run's
decisions and its journal do not depend on where the work was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from accelopt.caches import cache_with, default_cache, package_key, secret_of, trials_folder
from accelopt.errors import ConfigError, require
from accelopt.evaluation import Row, Status
from accelopt.sandbox.leases import lease
from accelopt.sandbox.scratch import scratch_folder
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.time_limits import CLUSTER_SECONDS

LOCAL = "local"
RETRIES = 3  # of a call whose node or process dies; after that it is a fault of the machines
NEURON_CORES = "neuron_cores"
TOKEN = Path("~/.ray/auth_token")

Answer = TypeVar("Answer", bound=Row)


class ClusterPool:
    """A `workers.Pool` of all CPUs of a Ray cluster, one a call.

    `address` is `local` (a cluster of this machine alone, with `count` CPUs, 0 for all), `auto`, or
    what `ray status` calls the head ("10.0.0.1:6379"). With `neuron_cores` a call takes one of those
    the cluster has; a call that needs a GPU takes a GPU. Raises MissingExtra without Ray, ConfigError
    where no cluster answers.
    """

    def __init__(self, address: str, count: int = 0, *, neuron_cores: bool = False) -> None:
        self._ray = ray = _ray()
        self.cache = str(default_cache())
        self._secret = secret_of(trials_folder(self.cache))
        self._neuron_cores = neuron_cores
        _refuse_silence(address)
        where = {"num_cpus": count or None} if address == LOCAL else {"address": address}
        with _signals_kept():
            try:
                ray.init(
                    **where,
                    include_dashboard=False if address == LOCAL else None,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    ignore_reinit_error=True,
                )
            except (ConnectionError, ValueError, RuntimeError, OSError) as error:
                raise _no_answer(address, error) from None
        self.count = int(ray.cluster_resources().get("CPU", 1))
        self._task: Any = ray.remote(on_node)

    async def ask(self, call: Call, answer: type[Answer]) -> Answer | Fault:
        """`workers.perform` on a node that is free. Cancelling the task ends the child."""
        files = {path: Path(path).read_bytes() for path in call.files}
        needs = self._task.options(
            num_cpus=1,
            num_gpus=int(call.gpu),
            resources={NEURON_CORES: 1} if self._neuron_cores else None,
            max_retries=RETRIES,
            scheduling_strategy="SPREAD",
        )
        under_way = needs.remote(call, answer, files, (self.cache, self._secret), package_key())
        try:
            found: Answer | Fault = await under_way
            return found
        except asyncio.CancelledError:
            self._ray.cancel(under_way, force=True)
            raise
        except self._ray.exceptions.RayError as error:
            said = str(error).strip().partition("\n")[0]
            return Fault(
                Status.FAULT, f"no node of the cluster did the evaluation: {said}", str(error), 0.0
            )

    def close(self) -> None:
        """End what is under way, and leave the cluster."""
        self._ray.shutdown()

    async def __aenter__(self) -> ClusterPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def on_node(
    call: Call,
    answer: type[Answer],
    files: Mapping[str, bytes],
    cache: tuple[str, str],
    package: str,
) -> Answer | Fault:
    """The node's side: the call with its files put here, and its answer as if they lay there.

    `cache` is the caller's folder and its secret, so that a kernel meets the same hidden inputs on
    every node. Raises ConfigError on a node with another version of this package or of what it computes with.
    """
    if package != package_key():
        raise ConfigError(
            f"the node {_ray().util.get_node_ip_address()} has another version of AccelOpt, or of what "
            "it computes with; install the same on every node"
        )
    with scratch_folder() as folder:
        theirs, secret = cache
        places = {theirs: str(cache_with(secret, default_cache()))}
        for (
            path,
            content,
        ) in files.items():  # beside each other as they lie there: one may import another
            here = folder / Path(path).absolute().relative_to("/")
            here.parent.mkdir(parents=True, exist_ok=True)
            here.write_bytes(content)
            places[path] = str(here)
        core = _core()
        payload = {**placed(call.payload, places), **({} if core is None else {"core": core})}
        with lease(f"neuron-{core}") if core is not None else contextlib.nullcontext():
            found = perform(call._replace(payload=payload), answer, threads=1)
        return _returned(found, answer, {here: there for there, here in places.items()})


def placed(value: Any, places: Mapping[str, str]) -> Any:
    """Plain data in which every text that is one of `places` is that place."""
    if isinstance(value, str):
        return places.get(value, value)
    if isinstance(value, Mapping):
        return {key: placed(item, places) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [placed(item, places) for item in value]
    return value


def _returned(
    found: Answer | Fault, answer: type[Answer], places: Mapping[str, str]
) -> Answer | Fault:
    """What was found, in the caller's words: paths of the node within texts are the caller's."""

    def words(text: str) -> str:
        for here, there in places.items():
            text = text.replace(here, there)
        return text

    if isinstance(found, Fault):
        return found._replace(message=words(found.message), output=words(found.output))
    return answer.model_validate_json(words(found.model_dump_json()))


def _refuse_silence(address: str) -> None:
    """Ray itself tries for minutes to reach an address where nobody is."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=CLUSTER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_answer(address, error) from None


def _no_answer(address: str, error: Exception) -> ConfigError:
    said = str(error).strip().partition("\n")[0]
    return ConfigError(
        f"no Ray cluster answers at {address!r} ({said}); start one with `ray start --head`, copy its "
        f"token to {TOKEN} if it has one (`ray get-auth-token`), or use --cluster local"
    )


def _core() -> int | None:
    """The NeuronCore that Ray gave this call; None where it asked for none."""
    given = _ray().get_runtime_context().get_accelerator_ids().get(NEURON_CORES, [])
    return int(given[0]) if given else None


def _ray() -> Any:
    # `ray start` asks for the token that lies there; a client shows it only when it is told to before
    # Ray is imported, and to a cluster that asks for none it does no harm (Ray 2.60, token-auth).
    if TOKEN.expanduser().is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    require("ray", ray="ray")
    return import_module("ray")


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray's driver takes SIGTERM for itself; here it ends a run in good order (`interruption`)."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # not in the main thread
            for number, action in before.items():
                signal.signal(number, action)
