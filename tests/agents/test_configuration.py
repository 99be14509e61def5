"""Model configuration files: what is accepted, what is refused in one sentence."""

import json

import pytest

from accelopt.agents.configuration import load_model_config
from accelopt.errors import ConfigError


def write(tmp_path, content):
    path = tmp_path / "model_config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


PUBLISHED = {"url": "http://localhost:1/v1", "model": "m", "api_key": "None"}


def test_the_published_form_and_the_shipped_file(tmp_path):
    config = load_model_config(write(tmp_path, PUBLISHED), "planner")
    assert (config.url, config.model, config.api_key) == tuple(PUBLISHED.values())
    assert not config.offline


def test_one_section_a_role_with_fallbacks(tmp_path):
    sections = {"executor": PUBLISHED, "fixer": {**PUBLISHED, "model": "f"}}
    path = write(tmp_path, sections)
    assert load_model_config(path, "fixer").model == "f"
    assert load_model_config(path, "planner").model == "m"
    assert load_model_config(write(tmp_path, {"executor": PUBLISHED}), "fixer").model == "m"


def test_a_key_from_the_environment(tmp_path):
    path = write(tmp_path, {**PUBLISHED, "api_key_env": "MY_KEY"})
    assert load_model_config(path, "planner", {"MY_KEY": "k"}).api_key == "k"
    with pytest.raises(ConfigError, match="MY_KEY, which is not set"):
        load_model_config(path, "planner", {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "not JSON"),
        ("[]", "JSON object"),
        ({"model": "m"}, "neither `url`"),
        ({"url": "u"}, "model"),
        ({**PUBLISHED, "temprature": 1}, "temprature"),
        ({**PUBLISHED, "timeout": -1}, "timeout"),
        *(
            ({"url": url, "model": "m"}, "is no http:// or https:// address")
            for url in ("::::", "http://", "ftp://host/v1", "http://host:port/v1", "", "x y")
        ),
    ],
)
def test_what_cannot_be_used_is_said(tmp_path, content, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_model_config(write(tmp_path, content), "planner")
