"""Profile one NKIBench kernel. From the repository's root:

python tests/test_profile.py [KERNEL REFERENCE]
"""

import json
import sys
from pathlib import Path

import pytest
from kernel_heads import neuronxcc_kernel, numpy_reference

from accelopt.kernel_wrapper import KernelProperties, NKIKernel

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "NKIBench" / "kernels" / "silu_M4096_N7168_0.py"
REFERENCE = ROOT / "NKIBench" / "reference" / "silu_M4096_N7168_numpy.py"
HOSTILE = ROOT / "tests" / "hostile"


def profile(program_path: Path | str, base_numpy_path: Path | str, **options) -> KernelProperties:
    """The published use of `NKIKernel`, with every field of `prompts/profile_list.json`."""
    save_fields = json.loads((ROOT / "prompts" / "profile_list.json").read_text())
    nki_kernel = NKIKernel(str(program_path), str(base_numpy_path), **options)
    nki_kernel.profile(save_fields)
    return nki_kernel.res


def test_single_profile(tmp_path):
    found = profile(
        HOSTILE / "kernels" / "honest_softmax.py",
        HOSTILE / "references" / "softmax.py",
        cache=tmp_path,
    )
    assert found.compiled and found.runnable and found.correct, found.metadata
    metadata = found.metadata
    assert 0 < metadata["min_ms"] <= metadata["latency"] <= metadata["max_ms"]
    assert metadata["rel_diffs"] == (metadata["max_ms"] - metadata["min_ms"]) / metadata["min_ms"]
    assert 0 < metadata["vector_engine_active_time_percent"] <= 1
    json.dumps(metadata)


if __name__ == "__main__":
    paths = sys.argv[1:3] if len(sys.argv) >= 3 else (KERNEL, REFERENCE)
    print(profile(*paths))


LOOPING = neuronxcc_kernel("""def kernel(x):
    o = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(1_000_000_000_000):
        {}
    nl.store(o, value=nl.multiply(nl.load(x), 2.0))
    return o
""")
TWICE = numpy_reference("2 * x", x=(128, 512))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("pass", ""),
        ("t = nl.ndarray((128, 4), dtype=nl.float32, buffer=nl.sbuf)", ""),
        ("nl.store(o, value=nl.load(x))", "kernel runs 2,000,000,000,003 instructions"),
    ],
)
def test_a_loop_of_a_trillion_iterations_comes_to_an_end(tmp_path, body, said):
    """What has no effect is not run; what would run for ever is refused before it does."""
    (tmp_path / "kernel.py").write_text(LOOPING.format(body))
    (tmp_path / "reference.py").write_text(TWICE)
    found = profile(tmp_path / "kernel.py", tmp_path / "reference.py", cache=tmp_path)
    assert found.correct is not bool(said), found.metadata
    assert said in str(found.metadata)
