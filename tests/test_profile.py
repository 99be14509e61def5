"""Profile one NKIBench kernel. From the repository's root:

python tests/test_profile.py [KERNEL REFERENCE]
"""

import json
import sys
from pathlib import Path

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
    from accelopt.kernels.nki.judging import trial_store

    found = profile(
        HOSTILE / "kernels" / "honest_softmax.py",
        HOSTILE / "references" / "softmax.py",
        trials=trial_store(tmp_path),
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
