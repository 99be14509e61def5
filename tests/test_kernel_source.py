"""Taking kernels out of replies, completing imports, recognising duplicates."""

import time

import pytest

from accelopt.kernel_source import complete_imports, fenced_blocks, fingerprint, kernel_source

KERNEL = "@nki.jit\ndef kernel(x):\n    return x"


@pytest.mark.parametrize(
    "reply",
    [
        f"```python\n{KERNEL}\n```",
        f"~~~python\n{KERNEL}\n~~~",
        f"```python\n{KERNEL}",
        f"````python\n{KERNEL}\n````",
        f"1. Step\n   ```python\n   {KERNEL.replace(chr(10), chr(10) + '   ')}\n   ```",
        f"```bash\npip install x\n```\n```python\n{KERNEL}\n```",
        f"```python\nfoo(\n```\nthen\n```python\n{KERNEL}\n```",
        f"```python\n{KERNEL}\n```\nUse it:\n```python\ny = kernel(x)\nprint(y)\n```",
        f"```python\ndef helper(x):\n    return x\n```\n```python\n{KERNEL}\n```",
        f"```python\n{KERNEL}\n```\n```text\n{'long ' * 500}\n```",
    ],
)
def test_the_block_that_defines_the_kernel_wins(reply):
    assert kernel_source(reply).strip() == KERNEL


def test_a_later_kernel_replaces_an_earlier_one():
    better = KERNEL.replace("return x", "return -x")
    assert (
        kernel_source(f"```python\n{KERNEL}\n```\nWait:\n```python\n{better}\n```") == better + "\n"
    )


def test_fences_inside_a_longer_fence_are_text():
    inner = KERNEL.replace("return x", 'return """\n```\n"""')
    assert kernel_source(f"````python\n{inner}\n````").strip() == inner


def test_code_with_a_syntax_error_is_returned_so_that_it_can_be_repaired():
    assert "def kernel(x:" in kernel_source("```python\ndef kernel(x:\n    return x\n```")


@pytest.mark.parametrize("reply", ["", "I cannot do this.", "```json\n{}\n```", "```\n```", "def"])
def test_replies_without_code_give_none(reply):
    assert kernel_source(reply) is None


@pytest.mark.parametrize("piece", ["`" * 3, "``` ", "```python\n", "def f(\n", "x = (\n", "(((("])
def test_huge_garbage_is_read_in_linear_time(piece):
    started = time.process_time()
    kernel_source(piece * (400_000 // len(piece)))
    assert time.process_time() - started < 5


def test_blocks_know_their_tag_and_whether_they_were_closed():
    assert fenced_blocks("```py\na\n```\n```\nb") == [("py", "a", True), ("", "b", False)]


def test_only_missing_imports_are_added_behind_the_preamble():
    source = '"""Doc."""\nfrom __future__ import annotations\n\nimport numpy as np\n' + KERNEL
    completed = complete_imports(source)
    assert completed.count("import neuronxcc.nki as nki\n") == 1
    assert completed.count("numpy") == 1
    assert "nisa" not in completed
    assert completed.startswith('"""Doc."""\nfrom __future__')
    assert complete_imports(completed) == completed


def test_shadowed_names_are_not_imported():
    assert complete_imports("def kernel(trace):\n    return trace\n").count("import") == 0


@pytest.mark.parametrize(
    "twin",
    [
        "def kernel(x):\n    # comment\n    y = x + 1\n    return y\n",
        "def kernel(x):\n    'doc'\n    y = (x\n      + 1)\n    return y",
        "def kernel(x):\n    total = x + 1\n    return total\n",
    ],
)
def test_layout_comments_docstrings_and_local_names_do_not_matter(twin):
    assert fingerprint(twin) == fingerprint("def kernel(x):\n    y = x + 1\n    return y\n")


@pytest.mark.parametrize(
    "other",
    [
        "def kernel(x):\n    y = x + 2\n    return y\n",
        "def kernel(y):\n    x = y + 1\n    return x\n",
        "def kernel(x):\n    y = x + 1\n    z = y\n    return y\n",
        "def kernel(x):\n    x = x + 1\n    return x\n",
    ],
)
def test_what_changes_the_program_changes_the_fingerprint(other):
    assert fingerprint(other) != fingerprint("def kernel(x):\n    y = x + 1\n    return y\n")


def test_swapped_variables_are_not_a_duplicate():
    one = "def kernel(a, b):\n    x = a\n    y = b\n    return x - y\n"
    two = "def kernel(a, b):\n    x = a\n    y = b\n    return y - x\n"
    assert fingerprint(one) != fingerprint(two)


def test_source_that_does_not_parse_still_has_a_fingerprint():
    assert fingerprint("def (") == fingerprint("def (") != fingerprint("def [")
    deep = "x = " + "+".join(["1"] * 20_000)
    assert fingerprint(deep) == fingerprint(deep)


CUDA_REPLY = """Here is the idea:

```cuda
__global__ void first(float* x) {}
```

and now the whole file:

```cpp
#pragma launch grid(1, 1, 1) block(64, 1, 1) shared(0)
__global__ void second(float* x) {}
```

```text
__global__ in words
```
"""


def test_of_cuda_the_last_block_with_a_kernel_is_taken():
    taken = kernel_source(CUDA_REPLY)
    assert taken.startswith("#pragma launch") and "second" in taken and "first" not in taken
    untagged = "```\n__global__ void only(int* x) { *x = 1; }\n```"
    assert kernel_source(untagged) == "__global__ void only(int* x) { *x = 1; }\n"
    inline = '```python\nsource = "__global__ void f() {}"\ndef run(x):\n    return x\n```'
    assert "def run" in kernel_source(inline)
