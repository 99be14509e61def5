"""Ctrl-C and exit end a trace at once; only errors and questions for numbers start it again."""

import numpy as np
import pytest


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_an_interruption_inside_of_a_loop_is_not_traced_again(kernel_text, tmp_path, ending):
    log = tmp_path / "runs"
    text = kernel_text(f"""
        @nki.jit
        def kernel(a):
            with open({str(log)!r}, "a") as file:
                file.write("run ")
            for i in nl.affine_range(4):
                raise {ending.__name__}
        """)
    with pytest.raises(ending):
        text.trace(np.zeros((128, 64), np.float32))
    assert log.read_text().split() == ["run"]
