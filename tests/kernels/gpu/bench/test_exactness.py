"""How exact an output is: a reference in float64, whatever formats it names."""

import pytest

from accelopt.evaluation import MOST_TIMES_LESS_EXACT

FORMS = {
    "widened": "torch.softmax(x.to(torch.float32), -1).to(x.dtype)",
    "as it is": "torch.softmax(x, -1)",
    "by an option": "torch.softmax(x, -1, dtype=torch.float32).to(x.dtype)",
    "in place": "(lambda y: y.copy_(torch.softmax(x.float(), -1)))(torch.empty_like(x))",
    "by rows": "(lambda y: (y.__setitem__(0, x[0].softmax(-1)), y.__setitem__(1, x[1].softmax(-1)), y)[2])"
    "(torch.zeros_like(x))",
    "rounded on the way": "torch.exp(x.log_softmax(-1).half()).bfloat16()",
    "by a mean": "torch.exp(x - torch.logsumexp(x, -1, keepdim=True)) * torch.full((), 1.0)",
    "attention": "torch.nn.functional.scaled_dot_product_attention(x[None, None, :, :1] * 0, x[None, None, :1, :1], "
    "x.softmax(-1)[None, None, 1:])[0, 0]",
}


def function(torch, text):
    return eval(f"lambda x: {text}", {"torch": torch})


@pytest.mark.parametrize("form", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_reference_is_computed_in_float64(torch, text, form):
    from accelopt.kernels.gpu.bench.process.exact_reference import ExactReference, distance

    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(1)).to(getattr(torch, form))
    found = ExactReference(function(torch, text))([x])
    wanted = torch.softmax(x.double(), -1)
    assert found.dtype == torch.float64 and torch.get_default_dtype() == torch.float32
    assert distance(found, wanted[1].expand(2, 64) if found[0].equal(found[1]) else wanted) < 1e-14


def test_products_are_seen_and_inputs_stay(torch):
    from accelopt.kernels.gpu.bench.process.exact_reference import ExactReference, nudged

    x = torch.randn(512, 512, dtype=torch.bfloat16)
    kept = x.clone()
    exact = ExactReference(lambda x: x @ x)
    assert exact.has_products is False
    exact([x])
    assert exact.has_products and x.equal(kept)
    [moved] = nudged([kept.clone()], 3)
    steps = (moved.view(torch.int16) - x.view(torch.int16)).double()
    assert steps.abs().max() == 1 and steps.square().mean() == pytest.approx(1 / 12, rel=0.1)


@pytest.mark.parametrize(
    ("made", "allowed"),
    [
        ("(x @ w).bfloat16()", True),
        ("(x.bfloat16() @ w.bfloat16()).bfloat16()", True),
        ("sum((x[:, k:k+256] @ w[k:k+256]).bfloat16() for k in range(0, 1024, 256))", True),
        ("functools.reduce(lambda s, k: (s.float() + x[:, k:k+8] @ w[k:k+8]).bfloat16(), range(0, 1024, 8),"
         " torch.zeros(64, 64))", False),
        ("(x.to(torch.float8_e4m3fn).float() @ w).bfloat16()", False),
        ("((x @ w) * 1.02).bfloat16()", False),
    ],
)  # fmt: skip
def test_a_rounding_or_two_are_no_loss_and_one_a_step_is(torch, made, allowed):
    import functools

    from accelopt.kernels.gpu.bench.process.exact_reference import exactness_of

    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(64, 1024, generator=generator).bfloat16().float() for _ in range(2))
    given = {"torch": torch, "functools": functools, "x": x, "w": w.T}
    exact = x.double() @ w.T.double()
    found = exactness_of(eval(made, given).bfloat16(), (x @ w.T).bfloat16(), exact, 1.0)
    times = found.times_less(found.model_copy(update={"error": 0.0}))
    assert (times <= MOST_TIMES_LESS_EXACT) is allowed, times
