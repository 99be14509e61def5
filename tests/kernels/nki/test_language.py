"""What the NKI backend says of kernels: names, counters, predictions, keys."""

import asyncio
from pathlib import Path

import pytest
from small_problem import KERNEL, REFERENCE
from timed_kernels import correct, timed

from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Evaluation, Scrutiny, Status
from accelopt.experience import Transition
from accelopt.hardware import TARGETS
from accelopt.kernels.language import LanguageOptions, open_language
from accelopt.kernels.nki.api_notes import describe
from accelopt.kernels.nki.counters import explain_counters
from accelopt.kernels.nki.text_without_paths import without_places
from accelopt.nodes import Node
from accelopt.sandbox.workers import WorkerPool


@pytest.fixture
def node(files, tmp_path):
    case = Case(
        case_name="silu", problem="silu", values={"M": 256, "N": 1024},
        task=str(tmp_path / "reference.py"), kernel=str(tmp_path / "kernel.py"),
    )  # fmt: skip
    return Node(case, KERNEL, correct(1.0))


def with_language(tmp_path, work, **options):
    async def run():
        async with WorkerPool(1) as pool:
            language = open_language(pool, LanguageOptions(tmp_path / "kernels", **options))
            return await work(language)

    return asyncio.run(run())


def test_explanations_say_bound_lines_and_roofline(tmp_path, node):
    explanation = with_language(tmp_path, lambda nki: nki.explain(node))
    text = "\n".join(explanation.facts)
    assert "simulated trn1" in text and "of bound" in text
    assert 0 < explanation.percent_of_peak < 1
    assert str(tmp_path) not in text


def test_a_kernel_of_ones_own_is_measured_against_its_own_bytes_and_operations(tmp_path, node):
    """A megabyte in and one out, at 435 GB/s: at least 0.0048 ms of the profile's 1 ms."""
    case = node.case.model_copy(update={"problem": "mine", "values": {}})
    own = Node(case, KERNEL, node.evaluation)
    explanation = with_language(tmp_path, lambda nki: nki.explain(own))
    assert 0.004 < explanation.percent_of_peak < 0.01
    assert "No kernel of this problem takes less than 0.004819 ms" in "\n".join(explanation.facts)


def test_schedules_that_are_all_slower_are_told_with_the_time_of_the_fastest(tmp_path, node):
    """Where schedules exist and none is faster, silence would leave the reason unknown."""

    async def told(language, node):
        await language.actions(node)
        return (await language.explain(node)).unscheduled

    quick = Node(node.case, KERNEL, node.evaluation.model_copy(update={"profile": timed(1e-3)}))
    said = with_language(tmp_path, lambda nki: told(nki, quick))
    assert "that were timed is predicted to take" in said and said.endswith(" ms")
    assert with_language(tmp_path, lambda nki: told(nki, node)) == ""


def test_a_calibrated_machine_has_predictions_and_verdicts_of_its_own(tmp_path, node):
    """What was worked out for one machine is not taken for another, wherever it is kept."""

    async def told(language):
        predicted = await language.predict(node, KERNEL)
        evaluation = await language.evaluate(node.case, KERNEL)
        taken = evaluation.profile
        key = language.evaluation_key(node.case, KERNEL)
        return predicted, taken.latency, key, taken.compiler

    launches = TARGETS["trn1"].launch_ns * 1e-6
    given = {}, {"constants": {"launch_ns": 2 * launches * 1e6}}, {"compiler": "2.26"}, {}
    table, machine, newer, again = (
        with_language(tmp_path, told, scrutiny=Scrutiny.QUICK, **options) for options in given
    )
    assert (table[3], newer[3]) == ("2.21", "2.26") and newer[2] not in (table[2], machine[2])
    assert machine[0] == pytest.approx(table[0] + launches)
    assert machine[1] == pytest.approx(table[1] + launches)
    assert machine[2] != table[2] and again == table


def test_predictions_are_what_the_evaluation_measures(tmp_path, node):
    async def both(language):
        predicted = await language.predict(node, KERNEL)
        return predicted, await language.evaluate(node.case, KERNEL)

    predicted, evaluation = with_language(tmp_path, both)
    assert evaluation.status is Status.CORRECT, evaluation.message
    assert predicted == pytest.approx(evaluation.profile.latency)
    refused = with_language(tmp_path, lambda nki: nki.predict(node, "def kernel(x):\n    oops"))
    assert refused == float("inf")


@pytest.mark.parametrize(
    ("old", "new"), [("y_tile", "product"), ("    for row", "    # rows\n    for row")]
)
def test_a_verdict_belongs_to_a_text_not_to_a_resemblance(tmp_path, node, old, new):
    """A kernel can read its own comments, docstring and variable names."""

    async def keys(language):
        return [language.evaluation_key(node.case, s) for s in (KERNEL, KERNEL.replace(old, new))]

    one, other = with_language(tmp_path, keys)
    assert old in KERNEL and one != other


def test_other_settings_are_another_evaluation(tmp_path, node):
    async def key(language):
        return language.evaluation_key(node.case, KERNEL)

    one = with_language(tmp_path, key)
    assert with_language(tmp_path, key) == one
    assert with_language(tmp_path, key, target="trn2") != one
    assert with_language(tmp_path, key, rel_tol=1e-6) != one


def test_a_verdict_is_reached_once_for_all_runs(tmp_path, node):
    """Of the simulated core, where it is the same each time: the wall seconds too are the first's."""
    first, second = (
        with_language(tmp_path, lambda nki: nki.evaluate(node.case, KERNEL)) for _ in "12"
    )
    assert first.status is Status.CORRECT and first.seconds == second.seconds


def test_actions_are_the_fastest_schedules_with_their_times(tmp_path, node):
    found = with_language(tmp_path, lambda nki: nki.actions(node))
    assert len(found) >= 2 and all(item.predicted for item in found)
    assert all(item.source != KERNEL and item.sentence for item in found)


def test_shapes_come_from_the_inputs_where_the_text_does_not_tell(tmp_path, node):
    text = REFERENCE.replace("def get_inputs", "def made_elsewhere")
    assert text != REFERENCE
    text += "\n\ndef get_inputs():\n    return [value for value in made_elsewhere()]\n"
    (tmp_path / "reference.py").write_text(text)

    async def both(language):
        predicted = await language.predict(node, KERNEL)
        return predicted, await language.actions(node)

    predicted, found = with_language(tmp_path, both)
    (tmp_path / "reference.py").write_text(REFERENCE)
    assert (predicted, found) == with_language(tmp_path, both)
    assert predicted > 0 and found


def test_a_reference_without_inputs_gives_no_shapes(tmp_path, node):
    (tmp_path / "reference.py").write_text("def get_inputs():\n    raise ValueError\n")
    assert with_language(tmp_path, lambda nki: nki.predict(node, KERNEL)) is None


def test_texts_name_no_folder_and_no_address(tmp_path):
    path = tmp_path / "deadbeef.py"
    evaluation = Evaluation(
        status=Status.COMPILE_ERROR,
        message=f"{path}:3: bad",
        traceback=f'File "{path}", line 3\n<object at 0x7f0011223344>',
    )
    clean = without_places(evaluation, path)
    assert clean.message == "kernel.py:3: bad"
    assert str(tmp_path) not in clean.traceback and "0x7f" not in clean.traceback


def test_counters_say_traffic_engines_and_spills():
    def told(**metrics):
        return " ".join(explain_counters(timed(1.0, **metrics), 400.0))

    assert "100% of the peak bandwidth" in told(hbm_read_bytes=400e6, hfu_estimated_percent=0.1)
    assert "vector engine 90%" in told(vector_engine_active_time_percent=0.9)
    spills = told(spill_save_bytes=1 << 20, spill_reload_bytes=1 << 20)
    assert "2.0 MiB" in spills and "spills" in spills and told()


def test_names_are_found_however_they_are_spelled():
    assert "PSUM" in describe("nisa.nc_matmul")
    assert describe("neuronxcc.nki.isa.nc_matmul") == describe("nc_matmul")
    assert "Near names" in describe("nc_matmull") and "nisa.nc_matmul" in describe("nc_matmull")


@pytest.mark.parametrize("name", ["triton", "flashinfer"])
def test_triton_is_also_what_it_was_called(name):
    """`--backend flashinfer` was published, and rows of earlier runs say so."""
    assert open_language(None, LanguageOptions(Path("kernels"), name)).name == "triton"
    assert Transition(to_method="split_k", language=name).language == "triton"


def test_an_unknown_backend_is_one_sentence():
    with pytest.raises(ConfigError, match="choose from nki, triton, cuda"):
        open_language(None, LanguageOptions(Path("kernels"), "metal"))


def test_a_start_that_only_hidden_inputs_find_fault_with_is_a_warning(tmp_path, node):
    """The search may begin from it; the same kernel from elsewhere is refused."""
    clipped = KERNEL.replace(
        "multiply(x_tile, sigmoid)", "multiply(nl.minimum(x_tile, 20.0), sigmoid)"
    )
    assert clipped != KERNEL
    Path(node.case.kernel).write_text(clipped)

    async def judged(language):
        start = await language.evaluate(node.case, language.complete(clipped))
        return start, await language.evaluate(node.case, language.complete(clipped + "\n# other"))

    start, other = with_language(tmp_path, judged)
    assert start.status is Status.CORRECT and "hidden inputs" in start.message
    assert other.status is Status.WRONG_NUMBERS


def test_text_that_no_kernel_needs_is_refused_before_it_is_judged(tmp_path, node):
    async def refused(language):
        return [
            language.text_refused(node.case, text) for text in (KERNEL, KERNEL + "\nopen('x')\n")
        ]

    passed, opened = with_language(tmp_path, refused)
    assert passed == "" and "open" in opened
