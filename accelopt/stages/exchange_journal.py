"""Model exchanges on disk: in the journal for the machine, as transcripts for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from accelopt.agents.calls import Exchange
from accelopt.agents.prompts import quote
from accelopt.errors import ConfigError, reason
from accelopt.store import Journal

KIND = "exchange"


class JournalledExchanges:
    """`Exchanges` kept in `journal`, each also as a readable file in `transcripts`.

    `recording` holds the exchanges of an earlier run; one that is asked for is taken over, so
    that the new run's journal is complete in itself.
    """

    def __init__(
        self,
        journal: Journal,
        transcripts: Path,
        recording: Mapping[str, Exchange] | None = None,
    ) -> None:
        self.journal = journal
        self.transcripts = transcripts
        self.recording = recording or {}
        for exchange in self.kept():
            if not self._transcript(exchange).exists():
                self._write(exchange)

    def kept(self) -> list[Exchange]:
        """All exchanges of this run, those of the processes before this one included."""
        found = (_exchange(entry.value) for entry in self.journal.entries(KIND))
        return [exchange for exchange in found if exchange is not None]

    def find(self, key: str) -> Exchange | None:
        """The exchange kept under `key`, or recorded under it."""
        kept = _exchange(self.journal.find(KIND, key))
        if kept is not None:
            return kept
        recorded = self.recording.get(key)
        if recorded is not None:
            self.keep(recorded)
        return recorded

    def keep(self, exchange: Exchange) -> None:
        """Append `exchange` to the journal and write its transcript."""
        self.journal.append(KIND, exchange.key, exchange.model_dump(mode="json"))
        self._write(exchange)

    def _write(self, exchange: Exchange) -> None:
        """Whole or not at all, but not forced to disk: it can be made again from the journal."""
        path = self._transcript(exchange)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_suffix(".part")
        beside.write_text(transcript(exchange), encoding="utf-8", errors="replace")
        beside.replace(path)

    def _transcript(self, exchange: Exchange) -> Path:
        name = re.sub(r"[^\w.-]+", "_", exchange.label)
        return self.transcripts / f"{name}.{exchange.key[:8]}.md"


def _exchange(value: object) -> Exchange | None:
    """The exchange in a journal's entry; one of another form is none."""
    try:
        return Exchange.model_validate(value)
    except ValidationError:
        return None


def read_recording(folder: Path) -> dict[str, Exchange]:
    """The exchanges in the journal of a run folder. Raises ConfigError when there is none."""
    path = folder / "journal.jsonl" if folder.is_dir() else folder
    exchanges: dict[str, Exchange] = {}
    try:
        with path.open() as file:
            for line in file:
                if line.endswith("\n"):
                    kind, key, value = json.loads(line)
                    if kind == KIND:
                        exchanges[key] = Exchange.model_validate(value)
    except OSError as error:
        raise ConfigError(f"cannot read the recording {path}: {reason(error)}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"the recording {path} is not the journal of a run") from error
    return exchanges


def transcript(exchange: Exchange) -> str:
    """One exchange as Markdown: what was asked, what came, what it cost."""
    lines = [
        f"# {exchange.label}",
        "",
        f"{exchange.request.get('model')}: {exchange.input_tokens} tokens in, "
        f"{exchange.output_tokens} out, ${exchange.money:.4f}, {exchange.seconds:g} s"
        + (f", {exchange.attempts} attempts" if exchange.attempts > 1 else ""),
    ]
    messages = exchange.request.get("messages")
    for message in messages if isinstance(messages, list) else []:
        lines += ["", f"## {message.get('role')}", "", _body(message)]
    if exchange.problem:
        lines += ["", "## unusable answer", "", quote(exchange.problem)]
    choices = (exchange.response or {}).get("choices")
    for choice in choices if isinstance(choices, list) else []:
        lines += ["", "## answer", "", _body(choice["message"])]
    return "\n".join(lines) + "\n"


def _body(message: Mapping[str, object]) -> str:
    parts = []
    for name in ("reasoning_content", "reasoning"):
        if message.get(name):
            parts.append("Reasoning:\n\n" + quote(str(message[name])))
    content = message.get("content")
    if content:
        parts.append(content if isinstance(content, str) else quote(json.dumps(content, indent=1)))
    if message.get("tool_calls"):
        parts.append(quote(json.dumps(message["tool_calls"], indent=1), "json"))
    return "\n\n".join(parts)
