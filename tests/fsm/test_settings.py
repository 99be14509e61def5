"""The settings that two kernels differ in."""

from accelopt.fsm.worker.states import setting_changes


def test_settings_that_changed():
    before = "TILE = 128\nK = 3\nk[grid](x, BLOCK=64, num_warps=4)\nf(x, n=1)\n"
    after = "TILE = 256\nK = 3\nk[grid](x, BLOCK=128, num_warps=4)\nf(x, n=2)\n"
    assert setting_changes(before, after) == {"TILE": "128->256", "BLOCK": "64->128"}
    config = "c = triton.Config({'BLOCK_M': %d}, num_stages=%d)\n"
    assert setting_changes(config % (64, 2), config % (32, 2)) == {"BLOCK_M": "64->32"}
    assert setting_changes("x = True\n", "x = False\n") == {} == setting_changes("a = 1", "def (")
