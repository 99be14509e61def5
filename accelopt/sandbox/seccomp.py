"""seccomp: system calls that a kernel under evaluation has no use for fail with EPERM.

A list of what is refused, not of what is allowed: the C library's needs differ between hosts, and
files and network are closed by Landlock and namespaces as well. Numbers: `asm/unistd_64.h` of x86,
`asm-generic/unistd.h` for aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import NamedTuple

from accelopt.sandbox import kernel


class _Numbers(NamedTuple):
    """One architecture: its audit number and its system calls by name."""

    audit: int
    of: dict[str, int]


_X86_64 = _Numbers(
    0xC000003E,
    {
        **dict(socket=41, socketpair=53, clone=56, fork=57, vfork=58, execve=59, kill=62),
        **dict(shmget=29, shmat=30, semget=64, msgget=68, ptrace=101, syslog=103, mknod=133),
        **dict(personality=135, pivot_root=155, adjtimex=159, chroot=161, acct=163),
        **dict(settimeofday=164, mount=165, umount2=166, swapon=167, swapoff=168, reboot=169),
        **dict(sethostname=170, setdomainname=171, iopl=172, ioperm=173, init_module=175),
        **dict(delete_module=176, quotactl=179, tkill=200, clock_settime=227, tgkill=234),
        **dict(kexec_load=246, add_key=248, request_key=249, keyctl=250, mknodat=259),
        **dict(unshare=272, rt_sigqueueinfo=129, rt_tgsigqueueinfo=297, perf_event_open=298),
        **dict(prlimit64=302, name_to_handle_at=303, open_by_handle_at=304, clock_adjtime=305),
        **dict(setns=308, process_vm_readv=310, process_vm_writev=311, kcmp=312),
        **dict(finit_module=313, memfd_create=319, kexec_file_load=320, bpf=321, execveat=322),
        **dict(userfaultfd=323),
    },
)
_AARCH64 = _Numbers(
    0xC00000B7,
    {
        **dict(socket=198, socketpair=199, clone=220, execve=221, kill=129, shmget=194),
        **dict(shmat=196, semget=190, msgget=186, ptrace=117, syslog=116, mknodat=33),
        **dict(personality=92, pivot_root=41, adjtimex=171, chroot=51, acct=89),
        **dict(settimeofday=170, mount=40, umount2=39, swapon=224, swapoff=225, reboot=142),
        **dict(sethostname=161, setdomainname=162, init_module=105, delete_module=106),
        **dict(quotactl=60, tkill=130, clock_settime=112, tgkill=131, kexec_load=104),
        **dict(add_key=217, request_key=218, keyctl=219, unshare=97, rt_sigqueueinfo=138),
        **dict(rt_tgsigqueueinfo=240, perf_event_open=241, prlimit64=261),
        **dict(name_to_handle_at=264, open_by_handle_at=265, clock_adjtime=266, setns=268),
        **dict(process_vm_readv=270, process_vm_writev=271, kcmp=272, finit_module=273),
        **dict(memfd_create=279, kexec_file_load=294, bpf=280, execveat=281, userfaultfd=282),
    },
)
# Since 2019 new calls have one number everywhere.
_COMMON = {
    **dict(pidfd_send_signal=424, io_uring_setup=425, io_uring_enter=426, io_uring_register=427),
    **dict(open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432, fspick=433),
    **dict(pidfd_open=434, clone3=435, pidfd_getfd=438, mount_setattr=442, memfd_secret=447),
}
_MACHINES = {"x86_64": _X86_64, "aarch64": _AARCH64}

# New processes, programs and sockets; everything else in the tables is refused in any case.
_PROCESSES = {"fork", "vfork", "execve", "execveat", "kill", "tkill"}
_PROCESSES |= {"rt_sigqueueinfo", "rt_tgsigqueueinfo"}
_SOCKETS = {"socket", "socketpair"}
_SHARED_MEMORY = {"memfd_create", "shmget", "shmat", "semget", "msgget"}
_BY_ARGUMENT = {"clone", "clone3", "tgkill", "prlimit64"}

_CLONE_THREAD = 0x00010000
_X32 = 0x40000000

# Classic BPF: load a word of seccomp_data, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_FILTER_MODE = 2


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("constant", ctypes.c_uint32),
    )


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def _refuse(number: int, error: int = errno.EPERM) -> list[_Instruction]:
    return [_Instruction(_EQUAL, 0, 1, number), _Instruction(_RETURN, 0, 0, _FAIL | error)]


def _only_if(number: int, test: int, constant: int) -> list[_Instruction]:
    """Refuse call `number` unless `test` holds for its first argument."""
    return [
        _Instruction(_EQUAL, 0, 4, number),
        _Instruction(_LOAD, 0, 0, _FIRST_ARGUMENT),
        _Instruction(test, 1, 0, constant),
        _Instruction(_RETURN, 0, 0, _FAIL | errno.EPERM),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    ]


def _program(numbers: _Numbers, processes: bool, sockets: bool) -> list[_Instruction]:
    of = {**numbers.of, **_COMMON}
    refused = set(of) - _BY_ARGUMENT
    if processes:
        refused -= _PROCESSES | _SHARED_MEMORY
    if sockets:
        refused -= _SOCKETS
    code = [
        _Instruction(_LOAD, 0, 0, _ARCHITECTURE),
        _Instruction(_EQUAL, 1, 0, numbers.audit),
        _Instruction(_RETURN, 0, 0, _KILL),
        _Instruction(_LOAD, 0, 0, _NUMBER),
    ]
    if numbers is _X86_64:
        code += [
            _Instruction(_AT_LEAST, 0, 1, _X32),
            _Instruction(_RETURN, 0, 0, _FAIL | errno.EPERM),
        ]
    for name in sorted(refused):
        code += _refuse(of[name])
    if not processes:
        # The C library falls back from clone3, whose flags lie in memory, to clone.
        code += _refuse(of["clone3"], errno.ENOSYS)
        code += _only_if(of["clone"], _ANY_BIT, _CLONE_THREAD)
        code += _only_if(of["tgkill"], _EQUAL, os.getpid())
        code += _only_if(of["prlimit64"], _EQUAL, 0)
    return [*code, _Instruction(_RETURN, 0, 0, _ALLOW)]


def restrict(*, processes: bool, sockets: bool) -> None:
    """Refuse the listed calls to this process and its children; needs no_new_privs.

    `processes` leaves fork, exec and signals, `sockets` leaves sockets. Raises OSError where the
    kernel or the machine has no filter.
    """
    numbers = _MACHINES.get(kernel.MACHINE)
    if numbers is None:
        raise OSError(f"no system call table for {kernel.MACHINE}")
    code = _program(numbers, processes, sockets)
    instructions = (_Instruction * len(code))(*code)
    program = _Filter(len(code), instructions)
    kernel.prctl(kernel.PR_SET_SECCOMP, _FILTER_MODE, ctypes.addressof(program))
