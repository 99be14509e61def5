"""Where each documented error id (SDK 2.26.1, `nki.errors.rst`) is decided."""

from __future__ import annotations

RULES: dict[str, str] = {
    "err_1d_arange_not_supported": "indexing:one_dimensional_arange",
    "err_activation_bias_invalid_type": "operands:bias_format",
    "err_activation_scale_invalid_type": "operands:scale_format",
    "err_activation_scale_scalar_or_vector": "operands:scale_shape",
    "err_ambiguous_tensor_truth_value": "control_flow:ambiguous_truth",
    "err_annotation_shape_mismatch": "operands:annotated_shape",
    "err_bias_tensor_must_be_specified_in_allocation": "allocation:bias_required",
    "err_cannot_assign_to_index": "indexing:assignment_to_index",
    "err_cannot_update_immutable_parameter": "kernels:immutable_parameter",
    "err_control_flow_condition_depending_on_arange": "control_flow:condition_on_arange",
    "err_copy_dynamic_indirect_indices_not_natively_supported": (
        "indexing:copy_between_runtime_indices"
    ),
    "err_dynamic_control_flow_not_supported": "control_flow:condition_on_tensor",
    "err_exceed_max_supported_dimension": "shapes:too_many_dimensions",
    "err_failed_to_infer_tile_from_local_tensor": "operands:not_a_tile",
    "err_hbm_tensor_with_init_value_not_supported": "allocation:initial_value_in_hbm",
    "err_indirect_indices_are_not_supported_with_nki_api": "indexing:runtime_index_not_supported",
    "err_indirect_indices_free_dim": "indexing:runtime_index_on_free_dimension",
    "err_leading_dimension_of_tensor_must_be_partition": "shapes:leading_dimension",
    "err_local_variable_used_out_of_scope": "control_flow:out_of_scope",
    "err_mutable_parameter_not_returned": "kernels:mutable_not_returned",
    "err_nested_kernel_with_spmd_grid": "kernels:nested_grid",
    "err_nki_api_outside_of_nki_kernel": "kernels:outside_of_kernel",
    "err_num_partition_exceed_arch_limit": "shapes:too_many_partitions",
    "err_num_partition_mismatch": "operands:partition_mismatch",
    "err_shared_hbm_must_in_kernel_level": "kernels:shared_hbm_in_block",
    "err_size_of_dimension_exceed_arch_limit": "shapes:dimension_too_large",
    "err_store_dst_shape_smaller_than_other_shape": "operands:destination_too_small",
    "err_tensor_access_out_of_bound": "indexing:out_of_bounds",
    "err_tensor_creation_on_scratchpad_with_init_value_not_supported": (
        "allocation:initial_value_on_scratchpad"
    ),
    "err_tensor_output_not_written_to": "kernels:output_not_written",
    "err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel": (
        "allocation:implicit_transpose"
    ),
    "err_unexpected_output_dependencies": "dependencies:missing_indices",
    "err_unsupported_expression_in_mask": "indexing:unsupported_mask",
    "err_unsupported_memory": "operands:wrong_memory",
    "err_unsupported_mixing_basic_advanced_tensor_indexing": "indexing:mixed_indexing",
    "err_while_loop_requires_unconditional_entry": "control_flow:while_on_tensor",
}
"""`module:function` in this package, by error id."""
