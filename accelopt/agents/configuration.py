"""Model configuration files: which endpoint answers for a role, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from accelopt.agents.roles import ROLES, ModelRole
from accelopt.errors import ConfigError, require
from accelopt.evaluation import faults
from accelopt.store import read_json
from accelopt.time_limits import MODEL_SECONDS

OFFLINE = "offline"
NO_KEY = "none"  # what a server without authentication is sent
PROVIDERS = {
    "http": "accelopt.agents.llm:Endpoint",
    "https": "accelopt.agents.llm:Endpoint",
}
"""Who answers at a URL, by its scheme: a `Provider` of `agents/calls.py`, "module:Class"."""


class ModelConfig(BaseModel):
    """`{url, model, api_key}` of the published contract, and what may be added to it.

    `url: "offline"` selects the offline proposer, which needs no model. Times are seconds,
    prices are dollars per million tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    model: str
    api_key: str = Field(default="", repr=False)
    api_key_env: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    reasoning_effort: Literal["minimal", "low", "medium", "high"] | None = None
    thinking_budget: int | None = Field(default=None, gt=0)
    price_input: float = Field(default=0.0, ge=0)
    price_output: float = Field(default=0.0, ge=0)
    concurrency: int = Field(default=16, gt=0)
    timeout: float = Field(default=MODEL_SECONDS, gt=0)
    attempts: int = Field(default=8, gt=0)
    backoff: float = Field(default=1.0, ge=0, description="first pause after a failed attempt")
    headers: dict[str, str] = Field(default_factory=dict, repr=False)

    @field_validator("url")
    @classmethod
    def _is_an_endpoint(cls, url: str) -> str:
        try:
            found = urlsplit(url)
            usable = found.scheme in PROVIDERS and bool(found.hostname) and found.port != 0
        except ValueError:  # a port that is no number, brackets that do not close
            usable = False
        if url != OFFLINE and not (usable and url.isprintable() and " " not in url):
            schemes = " or ".join(f"{scheme}://" for scheme in PROVIDERS)
            raise ValueError(f"{url!r} is no {schemes} address, nor {OFFLINE!r}")
        return url

    @property
    def offline(self) -> bool:
        """Whether the offline proposer answers instead of a model."""
        return self.url == OFFLINE

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be kept or shown, even when a server says it."""
        return (self.api_key, *self.headers.values())


def load_model_config(
    path: Path, role: ModelRole, environment: Mapping[str, str] | None = None
) -> ModelConfig:
    """The configuration of `role` in the file at `path`.

    The file holds one configuration, or one per role (`{"executor": {...}, "fixer": {...}}`),
    where a fixer or summarizer that is not named shares the executor's or planner's.
    `environment` is where a key named by `api_key_env` is looked up.

    Raises ConfigError: no such file, not JSON, unknown or missing keys, no such variable; MissingExtra
    where the packages are not installed that ask a model.
    """
    content = read_json(path, "the model configuration ")
    if not isinstance(content, dict):
        raise ConfigError(f"the model configuration {path} must be a JSON object")
    if "url" not in content:
        content = _for_role(content, role, path)
    try:
        config = ModelConfig.model_validate(content)
    except ValidationError as error:
        said = f"the model configuration {path} cannot be used: {faults(error)}"
        raise ConfigError(said) from None
    if not config.offline:
        require("models", openai="openai", agents="openai-agents")
    return resolve_key(config, environment or {})


def resolve_key(config: ModelConfig, environment: Mapping[str, str]) -> ModelConfig:
    """`config` with the key that `api_key_env` names. Raises ConfigError when it is not set."""
    if not config.api_key_env or config.offline:
        return config
    key = environment.get(config.api_key_env, "")
    if not key:
        raise ConfigError(
            f"the model configuration takes its key from the environment variable "
            f"{config.api_key_env}, which is not set"
        )
    return config.model_copy(update={"api_key": key})


def _for_role(content: dict[str, object], role: ModelRole, path: Path) -> object:
    for name in (role, *ROLES[role].fallbacks):
        if name in content:
            return content[name]
    raise ConfigError(
        f"the model configuration {path} has neither `url` nor a section for the {role}"
    )
