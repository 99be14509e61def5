"""Reasons that `source_rules` gives for refusing names which are known ways to cheat.

Nothing is forbidden for standing here: what is allowed stands in `allow_lists`, and all else is refused.
"""

from __future__ import annotations

HARNESS = "reaches the harness"
MEMORY = "reaches memory that was not passed to it"
OUTSIDE = "works outside the timed call"
UNSEEN = "runs code that the check cannot see"
FILES = "touches files"
LIBRARY = "is a library in place of a kernel"
STREAM = "works on a stream that the timer does not watch"
EVERYONE = "changes the library for everyone"
NO_TENSORS = "returns tensors that are not tensors"
CLOCK = "reads a clock"
OTHER = "is no part of what a solution may name"

_REASONS = {
    HARNESS: """__main__ accelopt flashinfer_bench gc inspect select selectors tracemalloc
        torch._C torch.autograd.profiler torch.cuda._sleep torch.cuda.cudart torch.cuda.Event
        torch.cuda.profiler torch.overrides torch.profiler torch.utils._python_dispatch
        triton.knobs triton.testing weakref""",
    CLOCK: "triton.language.extra.cuda.globaltimer",
    MEMORY: "cffi ctypes mmap numpy.ctypeslib",
    OUTSIDE: "_thread asyncio atexit concurrent sched signal threading time.sleep",
    UNSEEN: """bdb builtins cloudpickle code codeop cuda cupyx dill importlib joblib marshal numba pdb
        pickle pkgutil pycuda runpy torch.cuda.CUDAGraph torch.cuda.graph torch.cuda.graphs
        torch.cuda.make_graphed_callables torch.fx torch.jit torch.package torch.utils.cpp_extension
        triton.compile triton.compiler unittest zipimport""",
    "starts other processes": """multiprocess multiprocessing os psutil pty pynvml subprocess
        torch.distributed torch.multiprocessing""",
    "talks to the network": "http requests socket urllib",
    FILES: """bz2 codecs dbm fcntl fileinput glob gzip io linecache lzma numpy.fromfile numpy.load
        numpy.memmap numpy.save pathlib shelve shutil sqlite3 tarfile tempfile torch.UntypedStorage
        torch.from_file torch.hub torch.load torch.save torch.utils.data zipfile""",
    LIBRARY: """cupy deep_gemm flash_attn flashinfer jax liger_kernel sglang tensorflow
        torch._dynamo torch._inductor torch.compile transformer_engine triton.ops vllm xformers""",
    STREAM: """torch.Stream torch.cuda.ExternalStream torch.cuda.Stream torch.cuda.set_stream
        torch.cuda.stream torch.cuda.streams""",
    EVERYONE: "torch.backends torch.library torch.set_default_device torch.set_default_dtype",
    NO_TENSORS: "torch.Tensor._make_subclass torch.Tensor._make_wrapper_subclass",
}
REASONS = {name: reason for reason, names in _REASONS.items() for name in names.split()}


def reason_for(full: str) -> str:
    """Why a dotted name is refused."""
    parts = full.split(".")
    for length in range(len(parts), 0, -1):
        if (reason := REASONS.get(".".join(parts[:length]))) is not None:
            return reason
    return OTHER
