"""The first screen of a kernel's text, and the settings that two kernels differ in."""

import pytest

from accelopt.fsm.worker.changed_settings import setting_changes
from accelopt.fsm.worker.forbidden_names import violations

FORBIDDEN = [
    "torch.nn.Linear(2, 2)", "F.relu(x)", "torch.matmul(a, b)", "torch.einsum('ij', a)",
    "torch.ops.aten.mm(a, b)", "model.forward(x)", "inspect.stack()", "globals()", "locals()",
    "sys._getframe(0)", "torch.nn.functional.conv2d(x, w)", "torch.max_pool2d(x, 2)",
]  # fmt: skip


@pytest.mark.parametrize("text", FORBIDDEN)
def test_what_no_kernel_needs_is_a_violation_unless_its_parent_has_it(text):
    source = f"def kernel(x):\n    return {text}\n"
    assert len(violations(source, "")) >= 1
    assert violations(source, source) == ()


def test_imports_of_what_is_forbidden():
    assert violations("from torch.nn import functional\n", "")
    assert violations("import inspect\n", "") == ("inspect",)


@pytest.mark.parametrize(
    "text",
    ["nl.matmul(a, b)", "nisa.nc_matmul(a, b)", "torch.empty_like(x)", "tl.dot(a, b)", "F", "x.mm"],
)
def test_what_kernels_use_is_none(text):
    assert violations(f"def kernel(x):\n    # torch.matmul\n    return {text}\n", "") == ()
    assert violations("def kernel(:", "") == ()


def test_settings_that_changed():
    before = "TILE = 128\nK = 3\nk[grid](x, BLOCK=64, num_warps=4)\nf(x, n=1)\n"
    after = "TILE = 256\nK = 3\nk[grid](x, BLOCK=128, num_warps=4)\nf(x, n=2)\n"
    assert setting_changes(before, after) == {"TILE": "128->256", "BLOCK": "64->128"}
    config = "c = triton.Config({'BLOCK_M': %d}, num_stages=%d)\n"
    assert setting_changes(config % (64, 2), config % (32, 2)) == {"BLOCK_M": "64->32"}
    assert setting_changes("x = True\n", "x = False\n") == {} == setting_changes("a = 1", "def (")
