"""`accelopt.optimize` as a program calls it."""

import pytest
from small_problem import KERNEL, REFERENCE

import accelopt
from accelopt.cli.options import HELP
from accelopt.errors import ConfigError


def test_input_that_cannot_be_used_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="is not a file"):
        accelopt.optimize(tmp_path / "nowhere.py", tmp_path / "reference.py")
    (tmp_path / "kernel.py").write_text(KERNEL)
    with pytest.raises(ConfigError, match="needs --definition and --workload"):
        accelopt.optimize(tmp_path / "kernel.py", definition=tmp_path / "definition.json")
    (tmp_path / "reference.py").write_text(REFERENCE)
    files = tmp_path / "kernel.py", tmp_path / "reference.py"
    with pytest.raises(ConfigError, match="--warm-start begins from a database"):
        accelopt.optimize(*files, out=tmp_path / "run", warm_start=True)


def test_every_option_of_the_command_is_one_of_the_function(tmp_path):
    """What `accelopt optimize --help` lists: docs/api.md."""
    for name in HELP:
        with pytest.raises(ConfigError, match="is not a file"):
            accelopt.optimize(tmp_path / "nowhere.py", tmp_path, **{name: None})
    with pytest.raises(TypeError, match="no option 'beams'; there are model_config, iterations"):
        accelopt.optimize(tmp_path / "nowhere.py", tmp_path, beams=3)
