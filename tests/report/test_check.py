"""accelopt check: all violations with lines, memory against capacity, the numerical verdict."""

import numpy as np
import pytest
from kernel_heads import function_of, numpy_reference

from accelopt.errors import ConfigError
from accelopt.report.rule_check import check, check_text

HEAD = """import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt

@nki.jit
"""
REFERENCE = numpy_reference("np.exp(a)", a=(128, 1024))
RIGHT = function_of("a")("""
for i in nl.affine_range(4):
    nl.store(out[:, nl.ds(i * 256, 256)], nl.exp(nl.load(a[:, nl.ds(i * 256, 256)])))
""")


@pytest.fixture
def files(tmp_path):
    def write(source):
        kernel, reference = tmp_path / "kernel.py", tmp_path / "reference.py"
        kernel.write_text(HEAD + source)
        reference.write_text(REFERENCE)
        return kernel, reference

    return write


def test_right_kernel_passes_with_memory_and_verdict(files):
    report = check(*files(RIGHT))
    assert report.passed
    gate = [c for c in report.verdict.checks if c.name == "relative L2 error"]
    assert len(gate) == 5 and max(c.amount for c in gate) < 1e-6
    sbuf = next(use for use in report.memory if use.memory == "SBUF")
    assert 2 * 1024 <= sbuf.peak <= 4 * 2 * 1024 and sbuf.capacity > 180_000
    assert sbuf.holders[0].source.line == 12
    assert "correct" in check_text(report)


def test_wrong_kernel_is_told_by_how_much(files):
    report = check(*files(RIGHT.replace("nl.exp", "nl.square")))
    assert not report.passed and report.verdict.checks[-1].amount > 0.1
    assert "wrong numbers: relative L2 error failed output 0, seed 0" in check_text(report)


def test_every_violation_is_reported_not_only_the_first(files):
    kernel, _ = files("""def kernel(a: nt.tensor[128, 512]):
    out = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.load(a)
    x = nl.zeros((256, 4), dtype=nl.float32)
    y = nisa.tensor_tensor(t, nl.zeros((64, 512), dtype=nl.float32), op=nl.add)
    z = nl.exp(a)
    w = nl.add(y, z)
    acc = nl.ndarray((128, 512), dtype=nl.float32)
    for i in nl.affine_range(4):
        acc[...] = nl.exp(t)
    nl.store(out[:, nl.ds(100, 512)], w)
    nl.store(out[:, nl.ds(100, 512)], acc)
    return out
""")
    report = check(kernel)
    assert [(v.identifier, v.source.line) for v in report.violations] == [
        ("err_num_partition_exceed_arch_limit", 12),
        ("err_num_partition_mismatch", 13),
        ("err_unsupported_memory", 14),
        ("err_unexpected_output_dependencies", 18),
        ("err_tensor_access_out_of_bound", 20),
    ]
    text = check_text(report)
    assert f"{kernel}:13: err_num_partition_mismatch" in text
    assert all(violation.mend in text for violation in report.violations)


def test_answer_that_depends_on_the_order_of_iterations_is_refused(files):
    report = check(
        *files("""def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.load(a)
    r = nl.ndarray((128, 1024), dtype=a.dtype)
    r[:, nl.ds(0, 256)] = nl.exp(t[:, nl.ds(0, 256)])
    for i in nl.affine_range(3):
        r[:, nl.ds((i + 1) * 256, 256)] = nl.add(r[:, nl.ds(i * 256, 256)], 1.0)
    nl.store(out, r)
    return out
""")
    )
    assert [(v.identifier, v.source.line) for v in report.violations] == [
        ("parallel_dependence", 15)
    ]
    assert "iteration 1 of the loop" in (text := check_text(report)) and "sequential_range" in text
    assert not report.passed


def test_programs_of_a_grid_that_wait_for_each_other_are_told(files):
    report = check(
        *files("""def launched(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    shared = nl.ndarray((256, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
    p = nl.program_id(0)
    r, c = nl.mgrid[0:64, 0:1024]
    nl.store(shared[p * 64 + 64 + r, c], nl.exp(nl.load(a[p * 64 + r, c])))
    nl.store(out[p * 64 + r, c], nl.load(shared[p * 64 + r, c]))
    return out

kernel = launched[2]
""")
    )
    assert "parallel_dependence" in [v.identifier for v in report.violations], report
    assert "program 1 of the grid" in check_text(report)


def test_tiles_that_destroy_each_other_are_told_with_their_line(files):
    """nki_direct_allocation_guide.rst: overlapping addresses "would cause errors if the two tensors
    need to be alive at the same time"."""
    report = check(
        *files("""def kernel(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tiles = []
    for i, at in enumerate((0, 1024)):
        place = ncc.sbuf.alloc(lambda *_, at=at: (0, at))
        tile = nl.ndarray((128, 512), dtype=a.dtype, buffer=place)
        tile[...] = nl.load(a[:, nl.ds(i * 512, 512)])
        tiles.append(tile)
    for i, tile in enumerate(tiles):
        nl.store(out[:, nl.ds(i * 512, 512)], tile)
    return out
""")
    )
    assert [v.identifier for v in report.violations] == ["direct_allocation"], report
    assert "has been written since" in check_text(report)
    assert report.violations[0].source.line == 18


def test_python_error_of_the_kernel_is_reported(files):
    report = check(*files(RIGHT.replace("nl.affine_range(4)", "nl.affine_range(4 / 0)")))
    assert "ZeroDivisionError" in report.problem and not report.passed


def test_annotated_kernel_needs_no_reference(files):
    kernel, _ = files(RIGHT.replace("(a)", "(a: nt.tensor[128, 1024])", 1))
    assert check(kernel).passed
    assert check(kernel, target="trn2").target == "trn2"


def test_check_leaves_the_global_generator_alone(files):
    kernel, reference = files(RIGHT)
    state = np.random.get_state()[1].copy()
    check(kernel, reference)
    assert (np.random.get_state()[1] == state).all()


def test_what_the_kernel_prints_is_shown(files):
    report = check(*files(RIGHT.replace("    for i", "    print(a.shape)\n    for i")))
    assert report.passed and "(128, 1024)" in check_text(report)


def test_transform_that_fails_on_the_outputs_is_a_problem_of_the_kernel(files):
    kernel, reference = files(RIGHT)
    fails = "def transform_nki_outputs(k_res, ref):\n    assert k_res.shape == (3, 3)\n"
    reference.write_text(REFERENCE + fails)
    report = check(kernel, reference)
    said = check_text(report)
    assert not report.passed and "(128, 1024)" in said and "AssertionError" in said


def test_kernel_that_returns_nothing_is_told(files):
    report = check(*files(RIGHT.replace("    return out", "    return None")))
    assert not report.passed and "return" in check_text(report)


@pytest.mark.parametrize(
    ("kernel_change", "reference_change", "said"),
    [
        (("dtype=a.dtype", "dtype=nl.int32"), None, "expected float32, got int32"),
        (None, ("np.exp(a)", "np.exp(a)[:64]"), "expected (64, 1024), got (128, 1024)"),
        (("return out", "return out, out"), None, "the kernel returns 2, the reference 1"),
    ],
)
def test_outputs_that_cannot_be_compared_say_why(files, kernel_change, reference_change, said):
    kernel, reference = files(RIGHT.replace(*kernel_change) if kernel_change else RIGHT)
    reference.write_text(REFERENCE.replace(*reference_change) if reference_change else REFERENCE)
    report = check(kernel, reference)
    assert not report.passed and said in check_text(report)


def test_a_reference_that_gives_nan_is_to_blame_itself(files):
    """What the kernel should give there nobody can say."""
    kernel, reference = files(RIGHT)
    reference.write_text(REFERENCE.replace("np.exp(a)", "a * np.nan"))
    with pytest.raises(ConfigError, match=r"the reference gives NaN for .* of output 0, seed 0"):
        check(kernel, reference)


def test_wrong_number_of_arguments_is_placed_at_the_kernel(files):
    kernel, reference = files(RIGHT.replace("def kernel(a)", "def kernel(a, b)"))
    [violation] = check(kernel, reference).violations
    assert violation.source == (str(kernel), 8) and "'b'" in violation.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ("return [", "return np.zeros(3)  # "),
            "a list",
        ),
        (("def get_inputs", "raise SystemExit(2)\ndef get_inputs"), "SystemExit: 2"),
        (("def forward", "def backward"), "no function forward"),
        (("np.exp(a)", "None"), "it returns object, not numbers"),
    ],
)
def test_reference_that_cannot_be_used_is_a_sentence(files, change, said):
    kernel, reference = files(RIGHT)
    reference.write_text(REFERENCE.replace(*change))
    with pytest.raises(ConfigError, match=said) as error:
        check(kernel, reference)
    assert str(reference) in str(error.value)


def test_a_program_without_end_is_not_executed(files):
    kernel, reference = files(
        RIGHT.replace(
            "    for i", "    for n in nl.sequential_range(10**9):\n        nl.load(a)\n    for i"
        )
    )
    [broken] = check(kernel, reference).violations
    assert (broken.identifier, broken.source.line) == ("too_many_instructions", 12)
    assert "1,000,000,000 of them here; the simulated core takes" in broken.message
