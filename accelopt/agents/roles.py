"""The roles of a run as a table, `roles.csv`: what each is asked from which prompts, by whose model and how it is
sampled. The folders of prompts are our users' (`prompts/`, and one for each other language)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from accelopt.agents.prompts import PromptPair, read_names, read_text
from accelopt.evaluation import Row
from accelopt.tables import packaged_table

ModelRole = Literal[
    "planner",
    "executor",
    "fixer",
    "summarizer",
    "judge",
    "reflector",
    "lister",
    "relabeler",
    "expert",
]
"""Who may have a model of its own in a model configuration."""
MODEL_ROLES: tuple[ModelRole, ...] = get_args(ModelRole)


class Role(Row):
    """One question of a run.

    `model` is whose model answers, `fallbacks` whose where that has none. `folder`, `system` and
    `template` are the files of its prompts; with `shared` they hold for every language, and a folder
    without them takes those of the folder above. With `knows_language` the executor's system text, which
    says what there is to know of the language, stands before its own; `experiences` and `lessons` (what pairs
    of kernels and what attempts taught) stand behind it. `tokens` bounds an answer where
    the model's configuration does not; draw number n has temperature n of `temperatures`, in turn.
    """

    model: ModelRole
    fallbacks: tuple[ModelRole, ...]
    folder: str
    system: str = ""
    template: str
    shared: bool = False
    knows_language: bool = False
    experiences: bool = False
    lessons: bool = False
    tokens: int | None = None
    temperatures: tuple[float | None, ...] = (None,)

    @classmethod
    def read(cls, row: Mapping[str, str]) -> Role:
        """A row of `roles.csv`, where an empty cell says nothing."""
        several = {name: row[name].split() for name in ("fallbacks", "temperatures")}
        return cls.model_validate({name: cell for name, cell in {**row, **several}.items() if cell})

    def temperature(self, draw: int) -> float | None:
        """The temperature of draw number `draw`; None is the model's own."""
        return self.temperatures[draw % len(self.temperatures)]


ROLES: Mapping[str, Role] = {
    row.pop("role"): Role.read(row) for row in packaged_table("agents/roles.csv")
}


@dataclass(frozen=True)
class Prompts:
    """The texts of roles by their names, the profile fields that they are shown, and the aspects that a
    planner's draws look at in turn."""

    pairs: Mapping[str, PromptPair]
    displayed: tuple[str, ...] = ()
    aspects: tuple[str, ...] = ()

    def __getitem__(self, role: str) -> PromptPair:
        return self.pairs[role]

    @classmethod
    def read(cls, folder: Path, roles: Iterable[str] = ROLES) -> Prompts:
        """The prompts of `roles` in `folder`. Raises ConfigError for a text that is not there or empty."""
        planner = folder / ROLES["planner"].folder
        return cls(
            {role: _pair(folder, ROLES[role]) for role in roles},
            tuple(read_names(planner / "displayed_profiles.json")),
            read_aspects(planner),
        )


def read_aspects(folder: Path) -> tuple[str, ...]:
    """What the draws of a planner look at in turn; none when `folder` has no list of them."""
    path = folder / "aspects.json"
    return tuple(read_names(path)) if path.exists() else ()


def _pair(folder: Path, role: Role) -> PromptPair:
    place = folder / role.folder
    if role.shared and not place.is_dir():
        place = folder.parent / role.folder
    texts = [_pair(folder, ROLES["executor"]).system] if role.knows_language else []
    texts += [read_text(place / role.system)] if role.system else []
    return PromptPair("\n".join(texts), read_text(place / role.template))
