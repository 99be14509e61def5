"""Who answers at the URL of a model's configuration."""

from __future__ import annotations

PROVIDERS = {
    "http": "accelopt.agents.llm:Endpoint",
    "https": "accelopt.agents.llm:Endpoint",
}
"""Who answers at a URL, by its scheme: a `Provider` of `agents/calls.py`, "module:Class"."""
