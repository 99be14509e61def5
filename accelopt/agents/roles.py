"""The roles of a run as a table: what each is asked from which prompts, by whose model and how it is
sampled. The folders of prompts are our users' (`prompts/`, and one for each other language)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from accelopt.agents.prompts import PromptPair, read_names, read_text

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


class Role(NamedTuple):
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
    system: str = "base_prompt.txt"
    template: str = "user_prompt_template.txt"
    shared: bool = False
    knows_language: bool = False
    experiences: bool = False
    lessons: bool = False
    tokens: int | None = None
    temperatures: tuple[float | None, ...] = (None,)

    def temperature(self, draw: int) -> float | None:
        """The temperature of draw number `draw`; None is the model's own."""
        return self.temperatures[draw % len(self.temperatures)]


DEVELOPER = "developer_prompts"
PLANNER_TEMPERATURES = (0.7, 1.0, 0.9, 1.1)

ROLES: Mapping[str, Role] = {
    "planner": Role(
        "planner",
        ("executor",),
        "planner_prompts",
        template="planner_prompt_template.txt",
        experiences=True,
        lessons=True,
        temperatures=PLANNER_TEMPERATURES,
    ),
    "executor": Role(
        "executor", ("planner",), "executor_prompts", lessons=True, temperatures=(0.7, 1.0, 0.4)
    ),
    "fixer": Role("fixer", ("executor", "planner"), "fixer_prompts", lessons=True),
    "summarizer": Role("summarizer", ("planner", "executor"), "summarizer_prompts"),
    "judge": Role(
        "judge",
        ("planner", "executor"),
        DEVELOPER,
        "judge_base.txt",
        "judge.txt",
        shared=True,
        tokens=16_384,
    ),
    "generator": Role(
        "executor",
        ("planner",),
        DEVELOPER,
        "",
        "generate.txt",
        shared=True,
        knows_language=True,
        tokens=24_576,
        temperatures=PLANNER_TEMPERATURES,
    ),
    "reflector": Role(
        "reflector",
        ("planner", "executor"),
        DEVELOPER,
        "reflect_base.txt",
        "reflect.txt",
        shared=True,
        tokens=2_048,
    ),
    "agent": Role(
        "executor",
        ("planner",),
        "agent_prompts",
        shared=True,
        experiences=True,
        lessons=True,
        tokens=16_384,
    ),
    "lister": Role(
        "lister",
        ("planner", "executor"),
        "lister_prompts",
        shared=True,
        knows_language=True,
        lessons=True,
        tokens=32_768,
    ),
    "relabeler": Role(
        "relabeler", ("planner", "executor"), "relabeler_prompts", shared=True, tokens=2_048
    ),
    "expert": Role(
        "expert",
        ("planner", "executor"),
        "expert_prompts",
        shared=True,
        tokens=1_024,
        temperatures=(0.7,),
    ),
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
