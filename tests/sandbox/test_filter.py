"""The system call filter, decided by an interpreter of classic BPF: also for the machine we are not on."""

import errno

import pytest

from accelopt.sandbox import seccomp

READ = {"x86_64": 0, "aarch64": 63}
IOCTL_TERMINAL_SIZE = 0x5413
KILLED, ALLOWED = 0x80000000, 0x7FFF0000


def decided(program, architecture, number, arguments=(0, 0)):
    """What the filter returns for one call (linux/filter.h; seccomp_data of linux/seccomp.h)."""
    words = {0: number, 4: architecture, 16: arguments[0], 24: arguments[1]}
    at = accumulator = 0
    while True:
        step = program[at]
        if step.code == seccomp._LOAD:
            accumulator = words[step.constant]
        elif step.code == seccomp._RETURN:
            return step.constant
        else:
            holds = {
                seccomp._EQUAL: accumulator == step.constant,
                seccomp._AT_LEAST: accumulator >= step.constant,
                seccomp._ANY_BIT: bool(accumulator & step.constant),
            }[step.code]
            at += step.if_true if holds else step.if_false
        at += 1


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_metadata_is_out_of_reach(machine, processes):
    program = seccomp._program(machine, processes, sockets=processes)
    architecture = seccomp._AUDIT[machine]
    refusal = seccomp._FAIL | (0 if processes else errno.EPERM)
    for number in seccomp._numbers(machine, seccomp._METADATA).values():
        assert decided(program, architecture, number) == refusal
    ioctl = seccomp._IOCTL[machine]
    for request in seccomp._FILE_REQUESTS + seccomp._TERMINAL_REQUESTS:
        assert decided(program, architecture, ioctl, (3, request)) == refusal
    assert decided(program, architecture, ioctl, (3, IOCTL_TERMINAL_SIZE)) == ALLOWED
    assert decided(program, architecture, READ[machine]) == ALLOWED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_another_architecture_of_the_same_machine_ends_the_process(machine):
    """A 64-bit kernel takes 32-bit calls too, under other numbers (i386: 0x40000003, arm: 0x40000028)."""
    program = seccomp._program(machine, processes=False, sockets=False)
    for architecture in (0x40000003, 0x40000028):
        assert decided(program, architecture, READ[machine]) == KILLED


def test_the_numbers_of_x32_are_refused():
    program = seccomp._program("x86_64", processes=False, sockets=False)
    number = 0x40000000 | 90
    assert decided(program, seccomp._AUDIT["x86_64"], number) == seccomp._FAIL | errno.EPERM
