"""The models' endpoints of one run: one for each configuration, closed together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from urllib.parse import urlsplit

from accelopt.agents.budget import Ledger
from accelopt.agents.calls import Exchanges, Provider
from accelopt.agents.configuration import PROVIDERS, ModelConfig
from accelopt.concurrency import run_together
from accelopt.errors import ConfigError


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
