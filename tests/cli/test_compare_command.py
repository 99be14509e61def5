"""`accelopt compare`: profiles of our own making, in the forms that the vendor's tools leave, beside predictions."""

import csv
import json
from dataclasses import replace

import pytest
from kernel_heads import nki_of, numpy_reference
from typer.testing import CliRunner

from accelopt import measured as script_file_columns
from accelopt.cli.app import app, command
from accelopt.errors import ConfigError
from accelopt.hardware import TARGETS
from accelopt.kernels.nki.devices.measured_profile import read_profile
from accelopt.report.kernel_simulation import simulate
from accelopt.report.profile_comparison import compare, comparison_text
from accelopt.report.story import ProblemStory, Story, write_story
from accelopt.sim import timing
from accelopt.sim.timing.machine.transfers import RINGS
from accelopt.sim.timing.stream.operation import QUEUE_NAMES

KERNEL = nki_of("x")("""
for n in nl.affine_range(4):
    tile = nl.ndarray((128, 2048), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[n * 128 : n * 128 + 128])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0,
                       engine=nisa.engine.vector)
    nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.dma_copy(dst=out[n * 128 : n * 128 + 128], src=tile)
""")
REFERENCE = numpy_reference("np.exp(2 * x)", x=(512, 2048))
QUEUES = {"static": "data", "software": "software_dynamic", "sync": "hardware_dynamic"}
OPCODES = {"tensor_scalar": "TENSOR_SCALAR", "activation": "ACTIVATE"}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The folder of kernel and reference, and the prediction."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "kernel.py").write_text(KERNEL)
    (folder / "reference.py").write_text(REFERENCE)
    return folder, simulate(folder / "kernel.py", folder / "reference.py", "trn2", 60).profile


def tables(profile):
    """What `profile` would be as a measurement, as tables of the documented schema (SDK 2.33, "Profile Parquet
    Schema Reference"): instructions with an engine's own beside, packets, a summary, metadata."""
    run = profile.run
    instructions, packets = [], []
    begin = round(run.spec.launch_ns)
    for at, kind in enumerate(run.stream.kind):
        operation, cost = run.stream.instances[kind].operation, run.costs[at]
        span = {"start_ts": begin + round(run.timeline.start[at]), "pcore_idx": 0}
        if cost is None:
            end = begin + round(run.timeline.free[at])
            location = f"['/home/me/kernel.py:{operation.source.line}']"
            instructions.append({**span, "end_ts": end, "engine": QUEUE_NAMES[operation.queue].title(),
                                 "opcode": OPCODES[operation.opcode],
                                 "nki_source_location": location})  # fmt: skip
        else:
            end = begin + round(run.timeline.done[at])
            packets.append({**span, "end_ts": end, "queue_type": QUEUES[RINGS[cost.ring]], "queue_name": "qData0", "queue_idx": 3,
                            "transfer_bytes": cost.bytes})  # fmt: skip
    instructions.append({"start_ts": 0, "end_ts": 900, "pcore_idx": 0, "engine": "Vector", "opcode": "DRAIN",
                         "nki_source_location": None})  # fmt: skip
    total = {**profile.summary, "total_time": profile.latency_ms * 1e-3}
    return {
        "Instruction": instructions, "DmaPacket": packets, "Summary": [total],
        "Metadata": [{"profile_schema_version": "12.0.1", "instance_type": "trn2.3xlarge"}],
    }  # fmt: skip


def document(profile):
    """The same as a full profile in JSON, as profiler 2.28 names its fields."""
    made = tables(profile)
    return {
        "summary": [{**made["Summary"][0], "instance_type": "trn2.3xlarge"}],
        "instruction": [
            {"timestamp": r["start_ts"], "duration": r["end_ts"] - r["start_ts"], "subgroup": r["engine"],
             "opcode": r["opcode"], "nki_source_location": r["nki_source_location"]}
            for r in made["Instruction"]
        ],
        "dma": [
            {"timestamp": r["start_ts"], "duration": r["end_ts"] - r["start_ts"], "dma_queue": r["queue_name"],
             "queue_type": r["queue_type"], "transfer_size": r["transfer_bytes"]}
            for r in made["DmaPacket"]
        ],
    }  # fmt: skip


def written(folder, profile):
    """A folder of Parquet files, one table in two of them."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    folder.mkdir()
    for name, rows in tables(profile).items():
        if name == "Instruction":
            parquet.write_table(pa.Table.from_pylist(rows[3:]), folder / "Instruction_1.parquet")
            rows, name = rows[:3], "Instruction_0"
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


def test_a_profile_that_agrees_is_said_to(found, tmp_path):
    """A measurement that is the prediction: every row is equal, nothing is to be explained; a folder of
    tables and a full profile say the same."""
    _, profile = found
    file = tmp_path / "full.json"
    file.write_text(json.dumps(document(profile)))
    one = compare("kernel.py", profile, read_profile(file))
    other = compare("kernel.py", profile, read_profile(written(tmp_path / "tables", profile)))
    assert replace(one, form="") == replace(other, form="")
    assert other.form == "Parquet tables of schema 12.0.1" and one.apart == pytest.approx(1)
    assert {row.name for row in one.kinds} == {
        "vector tensor_scalar",
        "scalar activation",
        "vector control",
    }
    lines = {row.name: row for row in one.lines}
    assert set(lines) == {"line 12", "line 14"}  # those of the two instructions
    for row in [*one.engines, *lines.values(), *one.kinds[:2], *one.rings]:
        assert row.difference_ns == pytest.approx(0, abs=8), row
    assert lines["line 12"].predicted.number == lines["line 12"].measured.number == 4
    (ring,) = one.rings
    assert ring.predicted.bytes == ring.measured.bytes == 2 * 512 * 2048 * 4
    assert one.counters["hbm_read_bytes"] == (512 * 2048 * 4,) * 2 and not one.explanations
    text = comparison_text(one)
    assert "+0.0%." in text and "nothing is to be explained" in text and "qData0" in text


def test_a_constant_that_explains_the_difference_is_named(found, tmp_path):
    """A core whose Scalar engine is half as fast leaves a profile of which that constant is the explanation,
    with about its value, and the engines agree then."""
    _, profile = found
    table = TARGETS["trn2"].scalar_cycles_per_element
    slow = replace(TARGETS["trn2"], scalar_cycles_per_element=2 * table)
    there = timing.profile(profile.run.program, slow, profile.run.compiler)
    file = tmp_path / "slow.json"
    file.write_text(json.dumps(document(there)))
    one = compare("kernel.py", profile, read_profile(file))
    first = one.explanations[0]
    assert one.kinds[0].name == "scalar activation" and one.kinds[0].difference_ns > 1000
    assert first.constant == "scalar_cycles_per_element" and first.table == table
    assert first.wanted == pytest.approx(2 * table, rel=0.15)
    assert first.apart < 1.05 < one.apart
    assert "scalar_cycles_per_element" in comparison_text(one)


def test_the_command_takes_the_target_from_the_profile(found, tmp_path):
    """Text and JSON; a summary alone compares engines and counters; a target that it is not of is refused."""
    folder, profile = found
    summary = {"n_1": {**tables(profile)["Summary"][0], "instance_type": "trn2.3xlarge"}}
    file = tmp_path / "summary.json"
    file.write_text("a log line of the tool\n" + json.dumps(summary))
    said = asked("compare", folder, "--measured", file)
    assert said.exit_code == 0, said.exception
    assert "(trn2.3xlarge, summary): +0.0%." in said.stdout and "engine, busy" in said.stdout
    assert "kind of instruction" not in said.stdout
    plain = json.loads(asked("compare", folder, "--measured", file, "--json").stdout)
    assert plain["predicted_ms"] == pytest.approx(plain["measured_ms"]) and plain["lines"] == []
    assert plain["engines"][1]["name"] == "vector"
    unknown = tmp_path / "unknown.json"
    unknown.write_text(json.dumps(summary).replace("trn2", "trn9"))
    refused = asked("compare", folder, "--measured", unknown)
    assert "trn9.3xlarge, which is none of trn1, trn2, trn3: say with --target" in str(
        refused.exception
    )
    refused = asked("compare", folder, "--measured", file, "--target", "trn1")
    assert isinstance(refused.exception, ConfigError) and "trn2.3xlarge, trn2" in str(
        refused.exception
    )


def asked(name, folder, *more):
    command([name])
    files = [str(folder / "kernel.py"), "--reference", str(folder / "reference.py")]
    words = ["--kernel", *files] if name == "calibrate" else files
    return CliRunner().invoke(app, [name, *words, *map(str, more)])


def test_a_machine_is_fitted_to_profiles(found, tmp_path):
    """Issue 42, point 4. A core with two constants of its own leaves a full profile; those are found, and seen."""
    folder, profile = found
    table = TARGETS["trn2"]
    own = {
        "launch_ns": 1.4 * table.launch_ns,
        "scalar_cycles_per_element": 1.5 * table.scalar_cycles_per_element,
    }
    there = timing.profile(profile.run.program, replace(table, **own), profile.run.compiler)
    (tmp_path / "full.json").write_text(json.dumps(document(there)))
    machine = tmp_path / "machine.json"
    done = asked("calibrate", folder, "--profile", tmp_path / "full.json", "--machine", machine)
    assert done.exit_code == 0, done.exception
    kept = json.loads(machine.read_text())["constants"]
    assert {name: kept[name]["value"] for name in own} == pytest.approx(own, rel=0.05)
    assert all(
        abs(one["value"] / getattr(table, name) - 1) < 0.1
        for name, one in kept.items()
        if name not in own
    )
    alone = asked("calibrate", folder, "--machine", machine)
    assert isinstance(alone.exception, ConfigError) and "has its --kernel" in str(alone.exception)


def test_a_profile_goes_into_a_report_and_into_a_row(found, tmp_path):
    """Issue 42, point 4: the comparison in a run's report, and a row of the columns of trn2_public.csv."""
    folder, profile = found
    (tmp_path / "full.json").write_text(json.dumps(document(profile)))
    problem = ProblemStory(name="exp", start_source=KERNEL)
    write_story(Story(name="run", device="trn2", problems=(problem,)), tmp_path)
    measured = "--measured", tmp_path / "full.json"
    assert asked("compare", folder, *measured, "--report", tmp_path).exit_code == 0
    shown = (tmp_path / "report.html").read_text()
    assert "Predicted and measured" in shown and "kernel.py: predicted" in shown
    for _ in range(2):
        done = asked("export", folder, *measured, "--out", tmp_path / "rows.csv")
        assert done.exit_code == 0, done.exception
    lines = (tmp_path / "rows.csv").read_text().splitlines()
    row = dict(zip(lines[0].split(","), next(csv.reader(lines[2:]))))
    assert len(lines) == 3 and set(row) == set(script_file_columns.rows("trn2_public")[0])
    assert float(row["measured_us"]) == pytest.approx(profile.latency_ms * 1e3, abs=0.01)
    assert row["arguments"] == '[["fp32[512,2048]"]]' and row["bytes"] == str(2 * 512 * 2048 * 4)
    (tmp_path / "rows.csv").write_text("a,b\n")
    refused = asked("export", folder, *measured, "--out", tmp_path / "rows.csv")
    assert "has not the columns" in str(refused.exception)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("hardware_flops", 1e9, "its products take 1,000,000,000 operations, the kernel's 0"),
        ("hbm_write_bytes", 4096, "it writes 4,096 B to HBM, the kernel's results have 4,194,304"),
    ],
)
def test_a_profile_of_another_kernel_is_said_to_be_and_fits_nothing(
    found, tmp_path, field, value, said
):
    folder, profile = found
    whole = document(profile)
    whole["summary"][0][field] = value
    (tmp_path / "full.json").write_text(json.dumps(whole))
    measured = "--measured", tmp_path / "full.json"
    assert (
        f"Not of this kernel as it is here: {said}." in asked("compare", folder, *measured).output
    )
    row = asked("export", folder, *measured, "--out", tmp_path / "rows.csv")
    fitted = asked("calibrate", folder, "--profile", tmp_path / "full.json")
    assert all(said in str(one.exception) for one in (row, fitted))


def test_what_is_no_profile_is_one_sentence(found, tmp_path):
    """Files that are damaged, cut, empty, of another kind, or lack what is needed."""
    _, profile = found
    whole = document(profile)
    broken = json.loads(json.dumps(whole))
    broken["instruction"][0]["duration"] = -5
    unnamed = json.loads(json.dumps(whole))
    del unnamed["instruction"][0]["opcode"]
    for text, said in (
        ("", "cannot be read as a profile"),
        (json.dumps(whole)[:500], "cannot be read as a profile"),
        ("[1, 2]", "no JSON object"),
        ("{}", "cannot be read"),
        (json.dumps({"a": {"total_time": 0}}), "no positive total_time"),
        (json.dumps(broken), "has the duration -5"),
        (json.dumps(unnamed), "row 0 of instruction lacks the field 'opcode'"),
        (json.dumps({"instruction": [1]}), "row 0 of instruction, 1, cannot be read"),
        (json.dumps({**whole, "dma": {"a": 1}}), "row 0 of dma, a, cannot be read"),
        (json.dumps({**whole, "summary": ["x"]}), "row 0 of summary, x, cannot be read"),
        ('{"instruction": [{"timestamp": 1' + "0" * 400, "cannot be read as a profile"),
        ('{"a":' * 100000, "nested too deep"),
        (json.dumps({"instruction": [], "summary": []}), "no positive total_time"),
    ):
        file = tmp_path / "profile.json"
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_profile(file)
    with pytest.raises(ConfigError, match="neither a file nor a folder"):
        read_profile(tmp_path / "nowhere")
    there = written(tmp_path / "tables", profile)
    (there / "DmaPacket.parquet").unlink()  # no transfers: the table is not written then
    assert read_profile(there).packets == []
    (there / "Instruction_1.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ConfigError, match=r"Instruction_1.parquet is damaged"):
        read_profile(there)
    (there / "Instruction_1.parquet").unlink()
    (there / "Instruction_0.parquet").unlink()
    with pytest.raises(ConfigError, match=r"no Instruction.parquet in it"):
        read_profile(there)
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist([{"engine": "Vector"}]), there / "Instruction.parquet")
    with pytest.raises(ConfigError, match="has no column opcode, start_ts, end_ts"):
        read_profile(there)
