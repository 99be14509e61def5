"""A child that answers requests: typed, in turn, and gone when it misbehaves."""

from pathlib import Path

import pytest

from accelopt.sandbox import Ending, Limits, Policy
from accelopt.sandbox.conversation import ChildEnded, ChildRaised, Conversation
from accelopt.sandbox.drivers import NEURON, NVIDIA
from tests.sandbox.talkative import Add, Misbehave, Sum, Text, Unknown

TESTS = Path(__file__).resolve().parents[1]
LIMITS = Limits(output_bytes=4 << 20, memory_bytes=1 << 30)


def talk(payload=None, policy=None):
    return Conversation(
        "tests.sandbox.talkative:handlers",
        {"base": 0} if payload is None else payload,
        policy=policy or Policy(readable=(str(TESTS),)),
        limits=LIMITS,
    )


@pytest.fixture(scope="module")
def child():
    with talk({"base": 100}) as found:
        yield found


def test_requests_are_answered_in_turn(child):
    assert [child.ask(Add(first=i, second=1), Sum, 30).value for i in range(3)] == [101, 102, 103]
    assert "limits" in child.isolation


def test_messages_larger_than_a_pipe(child):
    text = "long " * 400_000
    assert child.ask(Text(value=text), Text, 30).value == text * 2


def test_what_a_handler_raises_is_an_answer(child):
    with pytest.raises(
        ChildRaised, match="RuntimeError: on purpose\N{REPLACEMENT CHARACTER}"
    ) as raised:
        child.ask(Misbehave(how="raise"), Text, 30)
    assert raised.value.kind == "builtins.RuntimeError" and "misbehave" in raised.value.traceback
    with pytest.raises(ChildRaised, match="Unknown"):
        child.ask(Unknown(), Text, 30)
    assert child.ask(Add(first=1, second=1), Sum, 30).value == 102


@pytest.mark.parametrize(
    ("how", "ending", "said"),
    [
        ("exit", Ending.FINISHED, "ended by exit code 3"),
        ("crash", Ending.FINISHED, "SIGSEGV"),
        ("flood", Ending.FLOOD, "flooded"),
        ("lie", Ending.FINISHED, "no answer: 1 faults"),
    ],
)
def test_a_child_that_goes_wrong_is_ended(how, ending, said):
    with talk() as child:
        for _ in range(2):  # and stays so
            with pytest.raises(ChildEnded, match=said) as ended:
                child.ask(Misbehave(how=how), Sum if how == "lie" else Text, 30)
            assert ended.value.ending is ending


def test_a_silent_child_is_ended_when_its_time_is_up():
    with talk() as child:
        child.ask(Add(first=1, second=1), Sum, 30)
        with pytest.raises(ChildEnded, match="within 1 s"):
            child.ask(Misbehave(how="hang"), Text, 1)


def test_an_entry_that_fails_tells_in_its_output():
    with talk({"fails": True}) as child, pytest.raises(ChildEnded) as ended:
        child.ask(Add(first=1, second=1), Sum, 30)
    assert "no handlers today" in ended.value.output


def test_a_drivers_settings_pass_and_keys_do_not(monkeypatch):
    for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "CUDA_MODULE_LOADING", "CC"):
        monkeypatch.setenv(name, "x")
    plain = Policy(readable=(str(TESTS),))
    with talk(policy=NVIDIA.allow(plain)) as child:
        seen = child.ask(Misbehave(how="environment"), Text, 30).value.split()
    assert {"CUDA_MODULE_LOADING", "CC"} <= set(seen)
    assert not [name for name in seen if "KEY" in name]
    with talk(policy=plain) as child:
        assert "CUDA_MODULE_LOADING" not in child.ask(Misbehave(how="environment"), Text, 30).value


def test_a_compiler_elsewhere_is_opened_and_the_folder_around_it_is_not(tmp_path, monkeypatch):
    for name in ("bin", "lib", "documents"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "mycc").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "mycc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "bin" / "mycc"))
    opened = NVIDIA.allow(Policy()).readable
    assert {str(tmp_path / "bin"), str(tmp_path / "lib")} <= set(opened)
    assert not {str(tmp_path), str(tmp_path / "documents")} & set(opened)


def test_a_driver_finds_itself_in_proc_and_nobody_else():
    """As on an H200: cuInit fails where /proc/self is not the process or its threads have no names."""
    policy = NVIDIA.allow(Policy(readable=(str(TESTS), "/proc")))
    with talk(policy=policy) as child:
        seen = child.ask(Misbehave(how="proc"), Text, 30).value.split()
    me, *others = map(int, seen)
    if any("process" in step for step in child.isolation):
        assert others and set(others) == {1, me}


@pytest.mark.parametrize("driver", [NVIDIA, NEURON])
def test_a_driver_opens_no_home_and_no_other_process(driver):
    allowed = driver.allow(Policy())
    assert allowed.processes and not allowed.network
    for path in ("/", "/home", "/root", "/etc", "/proc", "/tmp", "/etc/shadow"):
        assert path not in allowed.readable
    assert all(path.startswith(("/dev/", "/proc/self/")) for path in allowed.writable)
