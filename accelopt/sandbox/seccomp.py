"""seccomp: system calls that a kernel under evaluation has no use for fail with EPERM.

A list of what is refused, not of what is allowed: the C library's needs differ between hosts, and
files and network are closed by Landlock and namespaces as well. Landlock does not know who owns a
file, its mode, times and attributes (landlock(7), "Current limitations"), so the calls that change
them are refused here. Numbers: `asm/unistd_64.h` of x86, `asm-generic/unistd.h` for aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable

from accelopt.sandbox import linux_calls

# name, x86_64, aarch64; a dash where the architecture never had the call.
_CALLS = """
acct 163 89; add_key 248 217; adjtimex 159 171; bpf 321 280; chroot 161 51;
clock_adjtime 305 266; clock_settime 227 112; clone 56 220; clone3 435 435;
delete_module 176 106; execve 59 221; execveat 322 281; fanotify_init 300 262;
fanotify_mark 301 263; finit_module 313 273; fork 57 -;
fsconfig 431 431; fsmount 432 432; fsopen 430 430; fspick 433 433; init_module 175 105;
inotify_add_watch 254 27; inotify_init 253 -; inotify_init1 294 26;
io_uring_enter 426 426; io_uring_register 427 427; io_uring_setup 425 425; ioperm 173 -;
iopl 172 -; kcmp 312 272; kexec_file_load 320 294; kexec_load 246 104; keyctl 250 219;
kill 62 129; memfd_create 319 279; memfd_secret 447 447; mknod 133 -; mknodat 259 33;
mount 165 40; mount_setattr 442 442; move_mount 429 429; msgget 68 186;
name_to_handle_at 303 264; open_by_handle_at 304 265; open_tree 428 428; perf_event_open 298 241;
personality 135 92; pidfd_getfd 438 438; pidfd_open 434 434; pidfd_send_signal 424 424;
pivot_root 155 41; prlimit64 302 261; process_vm_readv 310 270; process_vm_writev 311 271;
ptrace 101 117; quotactl 179 60; reboot 169 142; request_key 249 218; rt_sigqueueinfo 129 138;
rt_tgsigqueueinfo 297 240; semget 64 190; setdomainname 171 162; sethostname 170 161;
setns 308 268; settimeofday 164 170; shmat 30 196; shmget 29 194; socket 41 198;
socketpair 53 199; swapoff 168 225; swapon 167 224; syslog 103 116; tgkill 234 131;
tkill 200 130; umount2 166 39; unshare 272 97; userfaultfd 323 282; vfork 58 -
"""
# Calls that change a file's mode, owner, times or attributes, whoever may write its contents.
_METADATA = """
chmod 90 -; chown 92 -; fchmod 91 52; fchmodat 268 53; fchmodat2 452 452; fchown 93 55;
fchownat 260 54; file_setattr 469 469; fremovexattr 199 16; fsetxattr 190 7; futimesat 261 -;
lchown 94 -; lremovexattr 198 15; lsetxattr 189 6; removexattr 197 14; removexattrat 466 466;
setxattr 188 5; setxattrat 463 463; utime 132 -; utimensat 280 88; utimes 235 -
"""
# Calls that reach other processes of the same user by number: shared memory, queues, priorities.
_OTHERS = """
ioprio_set 251 30; migrate_pages 256 238; move_pages 279 239; mq_open 240 180; mq_unlink 241 181;
msgctl 71 187; msgrcv 70 188; msgsnd 69 189; process_madvise 440 440; process_mrelease 448 448;
sched_setattr 314 274; sched_setparam 142 118; sched_setscheduler 144 119; semctl 66 191;
semop 65 193; semtimedop 220 192; setpriority 141 140; shmctl 31 195
"""
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# New processes, programs and sockets; everything else in the tables is refused in any case.
_PROCESSES = {"fork", "vfork", "execve", "execveat", "kill", "tkill"}
_PROCESSES |= {"rt_sigqueueinfo", "rt_tgsigqueueinfo"}
_SOCKETS = {"socket", "socketpair"}
_SHARED_MEMORY = {"memfd_create", "shmget", "shmat", "semget", "msgget"}
_BY_ARGUMENT = {"clone", "clone3", "tgkill", "prlimit64"}
# ioctl requests: attributes of files (linux/fs.h, also as 32-bit programs name them), and characters
# put into a terminal as if somebody had typed them (asm-generic/ioctls.h).
_IOCTL = {"x86_64": 16, "aarch64": 29}
_FILE_REQUESTS = (
    0x40086602,
    0x40046602,
    0x401C5820,
)  # FS_IOC_SETFLAGS, its 32-bit form, FSSETXATTR
_TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX

_CLONE_THREAD = 0x00010000
_X32 = 0x40000000

# Classic BPF: load a word of seccomp_data, compare, return.
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_FILTER_MODE = 2
_NOTHING = 0  # as an error: the call does nothing and seems to work


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


def _refuse_requests(machine: str, requests: Iterable[int], error: int) -> list[_Instruction]:
    """Refuse ioctl with one of these requests, of which the kernel reads the low 32 bits."""
    tests = [step for request in requests for step in _refuse(request, error)]
    return [
        _Instruction(_EQUAL, 0, len(tests) + 2, _IOCTL[machine]),
        _Instruction(_LOAD, 0, 0, _SECOND_ARGUMENT),
        *tests,
        _Instruction(_RETURN, 0, 0, _ALLOW),
    ]


def _numbers(machine: str, table: str) -> dict[str, int]:
    """The calls of a table by name, on one architecture."""
    column = 1 + list(_AUDIT).index(machine)
    rows = (row.split() for row in table.split(";"))
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _program(machine: str, processes: bool, sockets: bool) -> list[_Instruction]:
    of = _numbers(machine, _CALLS)
    refused = set(of) - _BY_ARGUMENT
    # A compiler that copies a file with its mode goes on when that seems to work; nothing happens.
    unchanged = _NOTHING if processes else errno.EPERM
    if processes:
        refused -= _PROCESSES | _SHARED_MEMORY
    if sockets:
        refused -= _SOCKETS
    code = [
        _Instruction(_LOAD, 0, 0, _ARCHITECTURE),
        _Instruction(_EQUAL, 1, 0, _AUDIT[machine]),
        _Instruction(_RETURN, 0, 0, _KILL),
        _Instruction(_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        code += [
            _Instruction(_AT_LEAST, 0, 1, _X32),
            _Instruction(_RETURN, 0, 0, _FAIL | errno.EPERM),
        ]
    for name in sorted(refused):
        code += _refuse(of[name])
    for number in _numbers(machine, _METADATA).values():
        code += _refuse(number, unchanged)
    code += _refuse_requests(machine, (*_FILE_REQUESTS, *_TERMINAL_REQUESTS), unchanged)
    if not processes:
        for number in _numbers(machine, _OTHERS).values():
            code += _refuse(number)
        # The C library falls back from clone3, whose flags lie in memory, to clone.
        code += _refuse(of["clone3"], errno.ENOSYS)
        code += _only_if(of["clone"], _ANY_BIT, _CLONE_THREAD)
        code += _only_if(of["tgkill"], _EQUAL, os.getpid())
        code += _only_if(of["prlimit64"], _EQUAL, 0)
    return [*code, _Instruction(_RETURN, 0, 0, _ALLOW)]


def restrict(*, processes: bool, sockets: bool) -> None:
    """Refuse the listed calls to this process and its children; needs no_new_privs.

    `processes` leaves fork, exec and signals, and lets changes to a file's metadata seem to work;
    `sockets` leaves sockets. Raises OSError where the kernel or the machine has no filter.
    """
    if linux_calls.MACHINE not in _AUDIT:
        raise OSError(f"no system call table for {linux_calls.MACHINE}")
    code = _program(linux_calls.MACHINE, processes, sockets)
    instructions = (_Instruction * len(code))(*code)
    program = _Filter(len(code), instructions)
    linux_calls.prctl(linux_calls.PR_SET_SECCOMP, _FILTER_MODE, ctypes.addressof(program))
