"""Inputs: the same from the same draw, spread as it says, and never where they lay before."""

import pytest

from accelopt.kernels.gpu.bench.files.input_draws import NORMAL, TOUCH, VALUES, Draw, fresh
from accelopt.kernels.gpu.bench.files.tracefiles import InputSource


def factory_of(starter, name, **changes):
    from accelopt.kernels.gpu.bench.process.inputs import InputFactory

    workload = starter.workloads[name][-1].workload.model_copy(update=changes)
    return InputFactory(starter.root, starter.definitions[name], workload, "cpu")


@pytest.fixture
def factory(torch, starter):
    return factory_of(starter, "softmax_n8192")


def test_draws_cannot_be_foreseen_and_say_what_they_are():
    assert len({fresh().seed for _ in range(50)}) == 50
    assert not fresh().stressed and fresh("small").stressed
    assert fresh(lengths="gaps").fresh_indices
    assert all(
        draw.unusual for draw in (fresh("small"), fresh(lengths="gaps"), fresh(scalars=True))
    )


@pytest.mark.parametrize("values", [NORMAL, *VALUES])
def test_one_draw_is_one_set_of_values(torch, factory, values):
    first, second = (factory.make(Draw(7, values))[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, factory.make(Draw(8, values))[0])
    assert bool(torch.isfinite(first).all())


def test_a_touched_draw_has_one_other_value_in_each_tensor(torch, starter):
    factory = factory_of(starter, "rmsnorm_h4096")
    for plain, touched in zip(
        factory.make(Draw(7)), factory.make(Draw(7, touched=True)), strict=True
    ):
        assert touched[plain != touched].tolist() == [TOUCH]
    assert Draw(7, touched=True).unusual


def test_values_are_spread_as_their_names_say(torch, factory):
    drawn = {values: factory.make(Draw(7, values))[0] for values in (NORMAL, *VALUES)}
    assert drawn["small"].abs().max() < 0.01
    assert drawn["shifted"].mean() > 10 * drawn["shifted"].std()
    assert drawn["skewed"].min() >= 0 and drawn["skewed"].max() > 10 * drawn["skewed"].mean()
    spikes = [row[row > 19.0].tolist() for row in drawn["spiked"]]
    assert [len(row) for row in spikes] == [1] * len(spikes)
    assert len({size for (size,) in spikes}) == len(spikes) and max(spikes)[0] <= 1e4
    least = factory.make(Draw(7, "huge", largest=1e2))[0].std()
    assert 9 < least < 110 and 9 < drawn["large"].std() < 110 and 900 < drawn["huge"].std() < 1.1e4
    scales = drawn["uneven"].std(dim=1)
    assert scales.max() > 1.5 * scales.min()


def test_numbers_are_drawn_near_what_the_workload_says(torch, starter):
    name = "gqa_paged_decode_h32_kv8_d128_ps16"
    inputs = starter.workloads[name][-1].workload.inputs
    said = inputs["sm_scale"].value
    factory = factory_of(starter, name)
    made = factory.make(Draw(7))
    assert made[-1] == said
    drawn = {factory.make(Draw(seed, scalars=True))[-1] for seed in range(20)}
    assert len(drawn) == 20 and all(said / 2 <= value <= 2 * said for value in drawn)
    factory.fill(made, Draw(3, scalars=True))
    assert made[-1] == factory.make(Draw(3, scalars=True))[-1] != said
    counts = {**inputs, "sm_scale": InputSource(type="scalar", value=8)}
    factory = factory_of(starter, name, inputs=counts)
    assert {factory.make(Draw(seed, scalars=True))[-1] for seed in range(40)} == set(range(4, 9))


def test_tensors_never_lie_where_they_lay(torch):
    from accelopt.kernels.gpu.bench.process.inputs import ALIGNMENT, placed

    device = torch.device("cpu")
    places = set()
    for _ in range(40):
        tensor = placed((3, 5), torch.float16, device)
        assert tensor.shape == (3, 5) and tensor.is_contiguous() and tensor.dtype == torch.float16
        places.add(tensor.storage_offset())
    assert len(places) > 30
    assert all(place * 2 % ALIGNMENT == 0 for place in places)


def test_a_seal_is_the_keys_and_the_values(torch):
    """Equal for equal bytes under one key; another for another key, or for any one bit."""
    from accelopt.kernels.gpu.bench.process.output_seals import Sealer

    sealer = Sealer(torch.device("cpu"))
    outputs = [torch.randn(7, 5).to(torch.bfloat16), torch.arange(9, dtype=torch.int8), "no tensor"]
    seal = sealer.seal(outputs, 1).tolist()
    assert len(seal) == 3 and seal[2] == 0 and 0 not in seal[:2]
    assert sealer.seal([output.clone() for output in outputs[:2]], 1).tolist() == seal[:2]
    assert sealer.seal(outputs, 2).tolist() != seal
    transposed = outputs[0].T.contiguous().T
    assert sealer.seal([transposed, *outputs[1:]], 1).tolist() == seal
    for index in range(9):
        changed = outputs[1].clone()
        changed[index] ^= 1
        assert sealer.seal([outputs[0], changed], 1).tolist()[1] != seal[1]
