"""Index tensors that are generated must be valid for every kernel that reads them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelopt.kernels.gpu.bench.files import index_tensors
from accelopt.kernels.gpu.bench.files.input_draws import EVEN, LENGTHS
from accelopt.kernels.gpu.bench.files.tracefiles import InputSource, Workload

INDEXED = ["gqa_paged_decode_h32_kv8_d128_ps16", "gqa_ragged_prefill_causal_h32_kv8_d128"]


def check_indptr(indptr, total):
    assert indptr[0] == 0
    assert indptr[-1] == total
    assert (np.diff(indptr) >= 0).all()


@pytest.mark.parametrize("name", INDEXED)
@pytest.mark.parametrize("lengths", [EVEN, *LENGTHS])
@pytest.mark.parametrize("seed", range(5))
def test_generated_indices_are_valid(starter, name, lengths, seed):
    definition = starter.definitions[name]
    for trace in starter.workloads[name]:
        arrays = index_tensors.generate(definition, trace.workload, seed, lengths)
        sizes = definition.sizes(trace.workload)
        for key, array in arrays.items():
            assert array.dtype == np.int32
            assert array.shape == definition.shape(definition.inputs[key], trace.workload)
        check_indptr(arrays["kv_indptr"], sizes.get("num_kv_indices", sizes.get("total_kv")))
        if "kv_indices" in arrays:
            pages = arrays["kv_indices"]
            assert len(set(pages.tolist())) == len(pages)
            assert pages.min() >= 0
            assert pages.max() < sizes["num_pages"]
            last = arrays["kv_last_page_len"]
            assert last.min() >= 1
            assert last.max() <= sizes["page_size"]


@pytest.mark.parametrize("name", [*INDEXED, "rmsnorm_h4096", "rope_h32_kv8_d128"])
def test_a_workload_of_other_sizes_is_as_valid(starter, tmp_path, name):
    """Totals are scaled, what belongs to a sequence follows their number, and indices still fit."""
    definition = starter.definitions[name]
    for row in starter.workloads[name]:
        index_tensors.materialise(tmp_path, definition, row.workload)
        other = index_tensors.resized(tmp_path, definition, row)
        axes = other.workload.axes
        assert axes != row.workload.axes
        tiles = {
            axis: size
            for axis, size in row.workload.axes.items()
            if size > 2 and axis != "len_indptr"
        }
        assert all(axes[axis] % 2 or axes[axis] == size for axis, size in tiles.items())
        if name in INDEXED:
            arrays = index_tensors.generate(definition, other.workload, 1)
            check_indptr(arrays["kv_indptr"], axes.get("num_kv_indices", axes.get("total_kv")))
            assert len(arrays["kv_indptr"]) == axes["len_indptr"]
            assert axes.get("batch_size", axes["len_indptr"] - 1) == axes["len_indptr"] - 1
            assert axes.get("total_q", 0) <= axes.get("total_kv", 0)
    fixed = definition.model_copy(update={"axes": {}})
    nothing = row.model_copy(update={"workload": row.workload.model_copy(update={"axes": {}})})
    assert index_tensors.resized(tmp_path, fixed, nothing) is None


@given(sequences=st.integers(1, 9), queries=st.integers(0, 60), spare=st.integers(0, 60),
       seed=st.integers(0, 99))  # fmt: skip
def test_keys_reach_as_far_as_queries(starter, sequences, queries, spare, seed):
    definition = starter.definitions[INDEXED[1]]
    source = {
        key: InputSource(type="safetensors", path="x", tensor_key=key)
        for key in ("qo_indptr", "kv_indptr")
    }
    axes = {"len_indptr": sequences + 1, "total_q": queries, "total_kv": queries + spare}
    arrays = index_tensors.generate(definition, Workload(axes=axes, inputs=source, uuid="u"), seed)
    check_indptr(arrays["qo_indptr"], queries)
    check_indptr(arrays["kv_indptr"], queries + spare)
    assert (np.diff(arrays["kv_indptr"]) >= np.diff(arrays["qo_indptr"])).all()


def test_files_are_made_once_and_equal_everywhere(starter, tmp_path):
    definition = starter.definitions[INDEXED[0]]
    workload = starter.workloads[INDEXED[0]][-1].workload
    [path] = index_tensors.materialise(tmp_path / "a", definition, workload)
    [again] = index_tensors.materialise(tmp_path / "b", definition, workload)
    assert index_tensors.materialise(tmp_path / "a", definition, workload) == []
    assert path.read_bytes() == again.read_bytes()
    assert index_tensors.is_generated(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = json.loads(path.read_bytes()[8 : 8 + length])
    assert header["kv_indptr"]["dtype"] == "I32"


def test_safetensors_reads_the_files(starter, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    definition = starter.definitions[INDEXED[0]]
    workload = starter.workloads[INDEXED[0]][-1].workload
    [path] = index_tensors.materialise(tmp_path, definition, workload)
    loaded = safetensors.load_file(str(path))
    assert set(loaded) == {"kv_indptr", "kv_indices", "kv_last_page_len"}
    assert loaded["kv_indptr"][0] == 0


@pytest.mark.parametrize("name", INDEXED)
def test_lengths_are_what_their_names_say(starter, name):
    definition, workload = starter.definitions[name], starter.workloads[name][0].workload
    lengths = {
        kind: np.diff(index_tensors.generate(definition, workload, 3, kind)["kv_indptr"])
        for kind in (EVEN, *LENGTHS)
    }
    assert lengths[EVEN].max() < 4 * lengths[EVEN].mean()
    assert lengths["lopsided"].max() > 0.6 * lengths["lopsided"].sum()
    assert (lengths["gaps"] == 0).sum() >= len(lengths["gaps"]) // 4
    assert len({int(found.sum()) for found in lengths.values()}) == 1
