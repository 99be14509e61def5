"""Functions of the host's C library that reach files, processes, threads, memory or the time, where they
are called: the same words are good names for what a solution defines itself, and for methods.

By the headers that declare them (POSIX.1-2017 and Linux), which CUDA's and PyTorch's headers include.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from accelopt.kernels.gpu.bench.source.linkage import HOST, defines

_FUNCTIONS = re.compile(
    r"\b(?:"
    # unistd.h, fcntl.h, sys/stat.h, sys/uio.h, dirent.h
    r"p?(?:read|write)(?:v2?|64)?|lseek\w*|dup[23]?|pipe2?|close(?:_range)?|open(?:64|at2)?|creat64|fcntl|splice"
    r"|vmsplice|copy_file_range|(?:(?:un|sym)?link|f?l?ch(?:mod|own)|f?truncate|mkdir|f?access)(?:at)?|rmdir|f?chdir|chroot|isatty"
    r"|[fl]?stat(?:at|x|fs|vfs)?(?:64)?|f(?:data)?sync|get(?:cwd|p?pid|pg(?:id|rp)|tid|sid|e?[ug]id|hostname|login\w*)"
    r"|set(?:pgid|pgrp|sid|e?[ug]id|res[ug]id|hostname)|f?execve?(?:at)?|u?alarm|pause|nice|s?brk|daemon|sysconf"
    r"|readlink(?:at)?|getrandom|getentropy|(?:open|read|scan)dir|n?ftw|wordexp|mk[ds]?temps?|realpath|fdopen|tmpfile"
    r"|(?:posix_)?fallocate|posix_fadvise"
    # sched.h, sys/wait.h, spawn.h, ucontext.h, threads.h, sys/prctl.h, sys/resource.h
    r"|clone[23]?|unshare|setns|sched_\w+|wait(?:pid|id|[34])|posix_spawn\w*|(?:get|set|make|swap)context"
    r"|(?:thrd|mtx|cnd|tss|sem|mq|shm|pidfd|pkey|keyctl|io_uring|inotify|fanotify|epoll|timerfd|timer)_\w+"
    r"|(?:arch_)?prctl|ioctl|[gs]etrlimit|prlimit\w*|[gs]etpriority|futex|on_exit|perf_event_open|bpf"
    # signal.h, time.h, sys/time.h, poll.h
    r"|kill(?:pg)?|tg?kill|raise|sig(?:queue|procmask|suspend|wait\w*|altstack|set|hold|interrupt)|signalfd|eventfd"
    r"|time|times|ftime|stime|clock_nanosleep|clock_adjtime|[gs]etitimer|settimeofday|adjtime\w*|(?:local|gm)time\w*"
    r"|mktime|ctime|asctime|p?poll|pselect"
    # sys/mman.h, sys/shm.h, sys/socket.h, link.h, execinfo.h
    r"|m(?:un)?lock(?:all|2)?|munmap|madvise|msync|mincore|memfd_\w+|userfaultfd|shm(?:get|at|dt|ctl)|msg(?:get|snd|rcv)"
    r"|semop|semget|socketpair|sendto|sendm?msg|recv\w*|[gs]etsockopt|getaddrinfo|dl_iterate_phdr|dladdr1?|backtrace\w*"
    r")(?=\s*\()"
)
_NO_TYPES = {"return", "else", "do", "case", "throw", "and", "or", "not", "co_return", "co_await"}


def system_faults(text: str, sources: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Place, text and reason of every such call in `text`; `sources` are all texts of the solution."""
    for match in _FUNCTIONS.finditer(text):
        before = text[max(0, match.start() - 200) : match.start()].rstrip()
        if _is_call(before) and not defines(sources, match.group()):
            yield match.start(), match.group(), HOST


def _is_call(before: str) -> bool:
    """Whether a name and `(` behind this text are a call of a function of no object and no namespace but
    the host's; a word before them is the type in a declaration."""
    if before.endswith((".", "->")):
        return False
    if before.endswith("::"):
        owner = re.search(r"(\w*)\s*::$", before)
        return owner is not None and owner[1] in ("", "std")
    word = re.search(r"\w+$", before)
    return word is None or word.group() in _NO_TYPES
