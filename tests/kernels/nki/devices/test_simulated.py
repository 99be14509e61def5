"""The simulated core as a device: what comes back from the child that traces, and what does not."""

import os
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accelopt.evaluation import Status
from accelopt.kernels.nki.devices import KernelFailure, TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice

HERE = Path(__file__).parent
X = np.ones((128, 64), np.float32)
SHAPE = TensorArgument((128, 64), "float32")

SCALED = """
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    @nki.jit
    def kernel(x, factor):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(x), factor))
        return out
"""


@pytest.fixture
def compiled(tmp_path):
    def write(text: str, *arguments, target: str = "trn1", **options):
        path = tmp_path / "kernel.py"
        path.write_text(textwrap.dedent(text))
        return SimulatedDevice(target).compile(str(path), arguments, **options)

    return write


def test_run_and_measure(compiled):
    executable = compiled(SCALED, SHAPE, 3.0)
    x = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    (out,) = executable.run([x, 3.0])
    assert np.array_equal(out, 3 * x)
    measured = executable.measure()
    assert len(measured.runs_ms) == 1 and 0 < measured.runs_ms[0] < 1
    assert measured.metrics["hbm_read_bytes"] >= x.nbytes
    assert executable.low_precision() == ()
    assert "limits" in executable.isolation


def test_an_undecorated_kernel_runs_too(compiled):
    assert compiled(SCALED.replace("@nki.jit", ""), SHAPE, 3.0).program.results


def test_optimized_kernel_is_the_other_name(compiled):
    assert compiled(SCALED.replace("def kernel", "def optimized_kernel"), SHAPE, 3.0).program


def test_the_only_decorated_function_is_the_kernel_whatever_its_name(compiled):
    text = SCALED.replace("def kernel", "def scaled") + "\n    def helper(x):\n        pass\n"
    assert compiled(text, SHAPE, 3.0).program.name == "scaled"


def test_a_grid_is_given_in_the_file(compiled):
    text = SCALED.replace("def kernel", "def scaled").replace(
        "        out =", "        nl.program_id(0)\n        out ="
    )
    with pytest.raises(KernelFailure, match=r"write kernel = name\[grid\] below"):
        compiled(text, SHAPE, 3.0)
    assert compiled(text + "\n    kernel = scaled[1]\n", SHAPE, 3.0).program


def test_a_kernel_without_end_says_where_it_was(compiled, tmp_path):
    endless = SCALED.replace(
        "        out =", "        while True:\n            pass\n        out ="
    )
    with pytest.raises(KernelFailure) as failure:
        compiled(endless, SHAPE, 3.0, seconds=1)
    assert failure.value.status is Status.TIMEOUT
    said = f"took longer than 1 s and was at {tmp_path / 'kernel.py'}:"
    place = failure.value.message.partition(said)[2]
    assert place in ("7 then", "8 then"), failure.value.message


@pytest.mark.parametrize(
    ("name", "said"), [("bytearray(1 << 40)", ""), ("1 / 0", ""), ("assert x is None", ": assert x is None ")]
)  # fmt: skip
def test_an_error_of_the_kernels_python_has_its_line(compiled, tmp_path, name, said):
    with pytest.raises(KernelFailure, match=rf"{said}\(at {tmp_path}/kernel.py:7\)"):
        compiled(SCALED.replace("        out =", f"        {name}\n        out ="), SHAPE, 3.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def something(x): pass", "no function named kernel or optimized_kernel, and none with"),
        (SCALED.replace("nl.multiply", "nl.no_such_thing"), "no_such_thing"),
        (SCALED.replace("nl.load(x)", "nl.load(x[0:129])"), "kernel.py:8"),
        (SCALED.replace("(x, factor)", "(x, factor, more)"), "more"),
        ("def kernel(:", "SyntaxError"),
        ("raise ValueError('at import')", "at import"),
        ("__import__('no_such_package')", "no_such_package"),
    ],
)
def test_what_does_not_compile_says_why(compiled, text, said):
    with pytest.raises(KernelFailure) as failure:
        compiled(text, SHAPE, 3.0)
    assert failure.value.status is Status.COMPILE_ERROR
    assert said in failure.value.message + failure.value.traceback


ALLOCATES = """
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl

    free = [0]

    def tile(x):
        place = nki.compiler.sbuf.mod_alloc(base_addr=free[0])
        free[0] += 256
        return nl.ndarray((nl.par_dim(128), 64), x.dtype, buffer=place)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        one, other = tile(x), tile(x)
        one[...] = nl.load(x)
        other[...] = nl.multiply(one, 2.0)
        nl.store(out, other)
        return out
"""


def test_an_allocator_that_goes_on_makes_the_same_kernel_further_on(compiled, tmp_path):
    """nki-samples' attn_fwd_v9 has one of its module; tiles that lie otherwise are another kernel."""
    file = tmp_path / "kernel.py"
    assert compiled(ALLOCATES, SHAPE).is_made_again(str(file), [SHAPE], 1)
    apart = ALLOCATES.replace("256", "256 + free[0]")
    assert not compiled(apart, SHAPE).is_made_again(str(file), [SHAPE], 1)


def test_narrow_formats_are_seen_wherever_they_are(compiled):
    narrow = SCALED.replace("nl.load(x)", "nl.copy(nl.load(x), dtype=nl.bfloat16)")
    use, *_ = compiled(narrow, SHAPE, 3.0).low_precision()
    assert use.dtype == "bfloat16" and "kernel.py:8" in use.where
    use, *_ = compiled(
        SCALED.replace("dtype=x.dtype", "dtype=nl.float16"), SHAPE, 3.0
    ).low_precision()
    assert use.dtype == "float16" and "kernel.py:7" in use.where


def test_wrong_arrays_are_run_errors(compiled):
    with pytest.raises(KernelFailure) as failure:
        compiled(SCALED, SHAPE, 3.0).run([np.zeros((3, 3), np.float32), 3.0])
    assert failure.value.status is Status.RUN_ERROR


def test_the_simulated_core_traces_beside_a_real_sdk():
    """Where an SDK is installed and no core is, its `nki` must not be what kernels import."""
    program = """
        import accelopt.sim.standin as standin
        assert standin.sdk_installed() and not standin.install()
        assert standin.install(always=True)
        import neuronxcc.nki.language
        assert neuronxcc.nki.language.__name__.startswith("accelopt.sim")
    """
    environment = {**os.environ, "PYTHONPATH": str(HERE / "sdk")}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    subprocess.run(command, env=environment, check=True)


def test_a_module_that_is_not_there_is_named_with_what_is_understood(tmp_path):
    kernel = tmp_path / "kernel.py"
    text = "import triton\n\n\n@triton.jit\ndef kernel(a):\n    return triton.language.load(a)\n"
    kernel.write_text(text)
    said = r"uses triton[.]language, .*neither.*kernel[.]py:6.*neuronxcc[.]nki"
    with pytest.raises(KernelFailure, match=said):
        SimulatedDevice("trn1").compile(str(kernel), [TensorArgument((128, 64), "float32")])


EMITTING = """
    import neuronxcc.nki as nki
    import neuronxcc.nki.language as nl
    from accelopt.sim.affine import TileAxis, variable
    from accelopt.sim.mask import Mask
    from accelopt.sim.isa.movement import COPY
    from accelopt.sim.tracer import current

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x).access()
        current().emit(COPY, outputs={"result": tile}, inputs={"data": tile}, MORE)
        nl.store(out, nl.load(x))
        return out
"""
OURS = {
    "emitting": (
        'attributes={"unheard_of": 1}',
        r"accelopt/sim/tracer[.]py:\d+, .*copy has no attribute 'unheard_of' .*kernel[.]py:13",
    ),
    "writing": (
        'attributes={"dtype": "float32"}, engine="a pigeon"',
        r"accelopt/sim/serial/writing[.]py:\d+, .*no attribute 'value'",
    ),
    "reading": (
        "attributes={}, mask=Mask((variable(TileAxis(-2, 4096)) - 5,))",
        r"accelopt/sim/serial/reading[.]py:\d+, .*no tile has an axis -2 of 4096",
    ),
}


@pytest.mark.parametrize("what", OURS)
def test_our_own_faults_are_told_with_their_place_and_blamed_on_nobody_else(
    compiled, tmp_path, what
):
    """Stand-ins for bugs of ours: a kernel that hands the tracer what no front end does."""
    more, words = OURS[what]
    with pytest.raises(KernelFailure) as failure:
        compiled(EMITTING.replace("MORE", more), SHAPE)
    assert failure.value.status is Status.FAULT
    said = rf"internal error of AccelOpt at {words}"
    assert re.match(said, failure.value.message, re.DOTALL), failure.value.message
    with pytest.raises(KernelFailure, match=said):
        SimulatedDevice("trn1").survey(str(tmp_path / "kernel.py"), [SHAPE])


def test_a_program_that_we_cannot_run_or_time_is_no_verdict_on_its_kernel(compiled):
    """A stand-in for a bug of ours: an instruction that no table knows, which tracing cannot leave."""
    executable = compiled(SCALED, SHAPE, 3.0)
    load, scaled, *rest = executable.program.body
    body = (load, replace(scaled, opcode="unheard_of"), *rest)
    executable.program = replace(executable.program, body=body)
    asked = {"executing": lambda: executable.run([X, 3.0]), "timing": executable.measure}
    for doing, ask in asked.items():
        said = f"internal error of AccelOpt while {doing} a program at accelopt/sim/.*no fault of the kernel"
        with pytest.raises(KernelFailure, match=said) as failure:
            ask()
        assert failure.value.status is Status.FAULT


@pytest.mark.parametrize("program", [b"", b"PK", b"PK\x03\x04 not a program", b"\x80\x04K\x01."])
def test_bytes_of_a_kernel_that_writes_its_own_are_the_damage_of_its_process(compiled, program):
    text = f"""
        import os
        for descriptor in range(3, 64):
            try:
                os.write(descriptor, {b'{"traced": true}' + bytes([10]) + program!r})
            except OSError:
                pass
        os._exit(0)
    """
    with pytest.raises(KernelFailure, match="kernel's process left a damaged program") as failure:
        compiled(text, SHAPE)
    assert failure.value.status is Status.CRASH
