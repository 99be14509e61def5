"""What every stage works with, opened once in the script or command and closed together."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from accelopt.agents.budget import Budget, Ledger
from accelopt.agents.calls import Exchange, Exchanges, Provider
from accelopt.agents.configuration import PROVIDERS, ModelConfig
from accelopt.agents.offline import OfflineProposer
from accelopt.concurrency import run_together
from accelopt.errors import ConfigError, require
from accelopt.evaluation import Scrutiny
from accelopt.kernels.language import Language, LanguageOptions, open_language
from accelopt.kernels.nki.devices import trainium
from accelopt.sandbox.cluster import ClusterPool
from accelopt.sandbox.workers import WorkerPool
from accelopt.stages.deadline import Deadline
from accelopt.stages.evaluations import Evaluations
from accelopt.stages.exchange_journal import JournalledExchanges, read_recording
from accelopt.stages.run_archive import Archive
from accelopt.store import Journal, JsonObject, RunFolder


@dataclass
class Calls:
    """The endpoints of one run: one for each configuration, all with the same journal and ledger. `say`
    is told what a person should know of them."""

    exchanges: Exchanges
    ledger: Ledger
    replay: bool = False
    traced: bool = False
    seed: int = 0
    say: Callable[[str], None] = lambda _: None
    _endpoints: dict[str, Provider] = field(default_factory=dict)

    def model(self, config: ModelConfig) -> Provider:
        """The endpoint of `config`, by the scheme of its URL. Raises ConfigError for a model without prices
        under a limit in dollars, which would never be reached."""
        priced = config.price_input or config.price_output
        if self.ledger.budget.money is not None and not (priced or self.replay):
            raise ConfigError(
                f"--max-dollars is counted by prices, and the model {config.model!r} has none: give price_input and "
                "price_output (dollars per million tokens) in its configuration, or --max-tokens"
            )
        name = config.model_dump_json()
        if name not in self._endpoints:
            module, _, provider = PROVIDERS[urlsplit(config.url).scheme].partition(":")
            self._endpoints[name] = getattr(import_module(module), provider)(
                config,
                self.exchanges,
                self.ledger,
                replay=self.replay,
                traced=self.traced,
                seed=self.seed,
                say=lambda said: self.say(said),
            )
        return self._endpoints[name]

    async def greet(self, say: Callable[[str], None]) -> None:
        """Say what speaks against the endpoints' answering later; one that cannot be reached is asked
        nothing."""

        async def greet(endpoint: Provider) -> None:
            try:
                if said := await endpoint.greet():
                    say(said)
            except ConfigError as error:
                endpoint.stop_asking(str(error))

        await run_together(map(greet, self._endpoints.values()))

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints.values():
            await endpoint.close()


class WorkshopOptions(NamedTuple):
    """How a workshop is set up.

    `language` says how kernels are judged; `screening` is what is asked of every sample; the winner is
    always asked for everything. `workers` 0 is one for each CPU; `cluster` is where a Ray cluster does
    the work instead. `cores` are the NeuronCores of a machine that has some. `traced` sends spans of
    model calls to logfire. The budget bounds the run: what its folder and those in `spent_in` hold
    already counts. With `replay`, the folder of an earlier run, no model is called. `database` keeps
    what the run finds for others, and with `warm_start` what they found is where it begins. After the
    `deadline` nothing new is judged but for the final checks.
    """

    language: LanguageOptions
    workers: int = 0
    cluster: str | None = None
    cores: tuple[int, ...] = ()
    budget: Budget = Budget()
    replay: Path | None = None
    seed: int = 0
    traced: bool = False
    screening: Scrutiny = Scrutiny.FULL
    spent_in: tuple[Path, ...] = ()
    database: str | None = None
    warm_start: bool = False
    deadline: Deadline | None = None


class Workshop(NamedTuple):
    """The tools of one run; everything it makes is kept in `journal`.

    `evaluations` judge every sample, `verifications` once more with full scrutiny what may win.
    """

    journal: Journal
    language: Language
    evaluations: Evaluations
    verifications: Evaluations
    ledger: Ledger
    calls: Calls
    offline: OfflineProposer
    archive: Archive


@asynccontextmanager
async def open_workshop(
    folder: Path, options: WorkshopOptions, saved: JsonObject | None = None
) -> AsyncIterator[Workshop]:
    """A workshop that keeps its journal, transcripts and evaluated sources in `folder`.

    `saved` is the configuration that a folder is made with; ConfigError when it was another.
    """
    recording = read_recording(options.replay) if options.replay else None
    if options.traced:
        start_tracing()
    with RunFolder(folder) as run_folder:
        if saved is not None:
            run_folder.save_config(saved)
        journal = run_folder.journal
        async with _pool(options) as pool:
            screening = options.language._replace(scrutiny=options.screening)
            language = open_language(pool, screening)
            evaluations = Evaluations(language, journal, options.deadline)
            verifications = Evaluations(open_language(pool, options.language), journal)
            ledger = Ledger(options.budget)
            exchanges = JournalledExchanges(journal, folder / "transcripts", recording)
            for exchange in (*exchanges.kept(), *_spent_elsewhere(options.spent_in)):
                ledger.charge(exchange)
            calls = Calls(
                exchanges,
                ledger,
                replay=recording is not None,
                traced=options.traced,
                seed=options.seed,
            )
            offline = OfflineProposer(language.actions, language.predict, language.scheduled)
            archive = Archive(journal, options.database, warm=options.warm_start)
            try:
                yield Workshop(
                    journal, language, evaluations, verifications, ledger, calls, offline, archive
                )
            finally:
                await evaluations.stop()
                await verifications.stop()
                await offline.stop()
                await calls.close()
                archive.close()


def _pool(options: WorkshopOptions) -> WorkerPool | ClusterPool:
    cores = options.cores if trainium.available() else ()
    if options.cluster is not None:
        return ClusterPool(options.cluster, options.workers, neuron_cores=bool(cores))
    return WorkerPool(options.workers or os.cpu_count() or 1, cores)


def _spent_elsewhere(folders: tuple[Path, ...]) -> Iterator[Exchange]:
    for folder in folders:
        yield from read_recording(folder).values()


def start_tracing() -> None:
    """Send a span for each agent run and model call to logfire, when a token for it is there.

    Raises MissingExtra when logfire is not installed.
    """
    require("tracing", logfire="logfire")
    import agents
    import logfire

    agents.set_trace_processors([])  # the SDK's own would send everything to OpenAI
    logfire.configure(service_name="accelopt", send_to_logfire="if-token-present")
    logfire.instrument_openai_agents()
