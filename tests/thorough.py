"""Tests for which CI has no time, as others try the same in fewer ways; ``make thorough`` runs them with all others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import pytest

from tests.plugin.quantised_networks import forms

_T = TypeVar("_T")
_TURNS, _PARTS = 8, 3

_WRONG = "plugin/test_planted_faults.py::test_a_file_that_became_wrong_is_not_published"

TESTS = (
    # Commands of the first pages run in CI.
    *(
        f"docs/test_guide.py::test_every_command_of_the_page_runs[docs/{page}]"
        for page in (
            "guide/troubleshooting",
            "guide/tuning",
            "guide/precision",
            "guide/continuous-integration",
            "guide/sizes",
            "guide/state",
            "guide/targets",
            "records/other-cpus",
            "records/kernels",
            "records/cold-start",
        )
    ),
    "docs/test_devices_and_machines.py::test_one_file_for_several_shapes_levels_and_devices",
    "docs/test_devices_and_machines.py::test_machines_that_measure_for_others",
    "docs/test_devices_and_machines.py::test_stock_tools_run_each_segment_of_a_file_for_two_devices",
    # Models of known sizes are drawn in CI, and several networks of open sizes tried.
    "tools/fuzz/test_campaign.py::test_models_with_an_open_dimension_are_right_or_refused",
    # Another command is timed cold in CI.
    "benchmarks/record/test_record.py::test_a_cold_compilation_is_timed_with_nothing_kept",
    # A peer that fails, and one that hangs, are tried in CI.
    "benchmarks/test_contest.py::test_who_ends_its_process_is_named_and_the_others_are_timed",
    # Budgets are kept on the CPU in CI, and a model in f16 runs kernels of that type on the device.
    *(
        f"plugin/test_gpu_precision.py::test_a_{each}"
        for each in ("plan_in_f16_keeps_to_its_budget_on_the_device", "budget_that_f16_exceeds_leaves_f32")
    ),
    # Another batch of random models is run in CI.
    "tools/fuzz/test_campaign.py::test_random_models_by_random_plans_are_right[1]",
    # Other layers have the same faults in CI, and so has a rewritten model.
    *(
        f"plugin/profiling/layerwise/test_layer_verdict.py::test_planted_faults_are_seen[{case}]"
        for case in ("residual-a2-channel's scale", "residual-b1-zero point", "residual-b3-swapped channels")
    ),
    # Caches are taken out of exported decoders in CI, and a module counts positions.
    *(
        f"plugin/open_sizes/test_exported_decoders.py::test_tokens_are_those_of_the_model[{make}]"
        for make in ("gpt2", "whisper", "merged_whisper")
    ),
    # Their nodes are compared with ONNX Runtime's in CI, and caches that Concat appends to are compiled.
    *(
        f"plugin/open_sizes/test_attention_caches.py::test_calls_give_what_the_model_gives[{form}]"
        for form in ("masked", "coded")
    ),
    # One decoder whose callers pass the caches is compiled in CI, with a mask; what beams reorder is found there.
    "plugin/open_sizes/test_passed_caches.py::test_beams_reorder_caches_whose_length_tells_the_number_of_positions",
    *(
        f"plugin/open_sizes/test_passed_caches.py::test_operators_that_append_take_caches_of_any_length[{kind}]"
        for kind in ("genai", "standard")
    ),
    # A state of fixed length is kept in CI.
    "plugin/test_states.py::test_buffers_are_kept_and_rows_beyond_them_refused",
    # The module of a decoder is made and checked step by step in CI, with caches that Concat appends to.
    *(
        f"plugin/open_sizes/test_caches.py::test_{each}"
        for each in (
            "tokens_are_those_of_the_model",
            "commands_generate_and_tell_of_caches",
            "prompts_are_taken_by_parts",
        )
    ),
    # Other faults of prompts are seen in CI.
    *(
        f"plugin/profiling/test_prompts.py::test_a_fault_is_seen_in_the_first_call_of_a_part[{fault}]"
        for fault in ("long", "sees")
    ),
    "plugin/profiling/test_cache_check.py::test_attentions_of_one_operator_append_and_read_as_others_do",
    # Other processors compute the same, and what runs is compiled too.
    *(
        f"codegen/routines/widened/test_{each}.py::test_sums_are_those_of_the_definition[skylake-avx512]"
        for each in ("word_pairs", "exact_winograd")
    ),
    "codegen/routines/encoded/test_block_product.py::test_variants_compile_for_aarch64",
    # Its kernels are compiled for the other tests of them, which are thorough.
    "codegen/routines/vector/test_neon_dots.py::test_every_case_has_its_kernels[neon_matrix_dots-i8]",
    # Tensor cores take the same tiles of bf16 as of f16, and as many registers.
    *(
        f"codegen/kernels/cuda/test_{test}-{gpu}]"
        for test in (
            "attention.py::test_the_assembler_finds_registers_enough[wide-bf16",
            "attention.py::test_the_assembler_finds_registers_enough[turned-bf16",
            "separable.py::test_all_variants_assemble_without_spills[bf16",
        )
        for gpu in ("sm_80", "sm_86", "sm_90")
    ),
    *(
        f"codegen/kernels/cuda/test_iree_implicit.py::test_the_region_computes_the_layer[{case}-bf16]"
        for case in ("padded", "strided", "pointwise", "pixels", "product", "attention", "mixed", "biased")
    ),
    # The same kernels are compiled for a GPU of another maker.
    *(
        f"codegen/routines/test_{test}[{gpu}]"
        for test in (
            "half_pairs.py::test_two_numbers_are_multiplied_at_once",
            "regions.py::test_regions_compile_for_other_gpus",
        )
        for gpu in ("rdna3", "valhall4")
    ),
    # Other layers and kernels are compiled for the same CPUs.
    *(
        f"codegen/routines/vector/test_separable.py::test_kernels_for_{each}"
        for each in ("avx2_compute_the_layers", "aarch64_compile")
    ),
    "codegen/routines/test_dots.py::test_kernels_compute_the_layers[x86-64-v3-bf16]",
    # Two other kernels of the same routine are run.
    *(
        f"dialect_passes/test_opening.py::test_attention_is_one_kernel_for_any_number_of_queries_and_keys[{kernel}]"
        for kernel in ("False-2", "True-1")
    ),
    # The other network is judged in this form, and this network in the other form.
    *(
        f"plugin/profiling/layerwise/test_layer_verdict.py::test_honest_modules_are_right_by_their_layers[{each}]"
        for each in ("residual-qoperator", "inverted-qdq")
    ),
    # GPUs of sm_80 have as many registers, and take these kernels and larger ones.
    *(
        f"codegen/kernels/cuda/test_attention.py::test_the_assembler_finds_registers_enough[{shape}-{dtype}-sm_86]"
        for shape in ("wide", "turned")
        for dtype in (None, "tf32", "f16")
    ),
    # GPUs of sm_80 have as many registers, and take these kernels in CI.
    *(
        f"codegen/kernels/cuda/test_{test}]"
        for test in (
            *(
                f"attention.py::test_the_assembler_finds_registers_enough[{shape}-{dtype}-sm_89"
                for shape in ("wide", "turned")
                for dtype in (None, "tf32", "f16", "bf16")
            ),
            *(
                f"separable.py::test_all_variants_assemble_without_spills[{dtype}-sm_89"
                for dtype in (None, "f16", "bf16")
            ),
            *(
                f"assembled.py::test_windows_and_rows_assemble_for_every_target[sm_89-{dtype}"
                for dtype in (None, "f16")
            ),
            *(
                f"iree_implicit.py::test_tensor_cores_multiply_narrower_types[sm_89-{dtype}"
                for dtype in ("f16", "bf16")
            ),
            "iree_implicit.py::test_tiles_go_through_shared_memory_to_sums_in_registers[sm_89",
        )
    ),
    # Files of the same tools in the other precision, with the other sign of integers, and without their extended
    # optimisations, are compiled in CI.
    *(
        f"plugin/onnx_model/test_onnx_runtime_files.py::test_a_file_compiles_and_is_right[{file}]"
        for file in (
            *("unet_f32", "vae_f16", "llama_f16", "vit_f16", "t5_f16", "gpt2_f16", "bert_f16"),
            *("dynamic_bert_u8_extended", "dynamic_bert_s8", "dynamic_lstm_u8"),
        )
    ),
    # All files of other libraries are prepared in CI, and two of them are compiled.
    *(
        f"plugin/onnx_model/test_library_files.py::test_a_file_compiles_and_is_right[{file}]"
        for file in (
            *("genai_llama_fp32", "jax2onnx_images", "jax2onnx_scan", "jax2onnx_sort"),
            *("jax2onnx_tokens", "keras_jax_images", "keras_jax_steps", "keras_torch_images", "keras_torch_steps"),
            *("onnx_ir_bert", "onnxscript_bert", "onnxsim_bert", "onnxslim_bert"),
            *("optimum_bert_model", "optimum_gpt2_model", "optimum_t5_decoder_model_merged"),
            "optimum_t5_encoder_model",
        )
    ),
    # The same modules exported for another operator set are prepared in CI.
    *(
        f"plugin/onnx_model/test_exporter_files.py::test_a_file_is_prepared_right[{file}]"
        for file in (
            *("grouped_attention_18", "grouped_attention_24", "group_norm_18", "largest_18", "resized_smoothly_23"),
            *("rms_norm_18", "rms_norm_24", "rotary_23", "while_loop_23"),
        )
    ),
    # The same network in float32 is compiled in CI.
    "plugin/test_interfaces.py::test_float64_is_exact_on_request",
    # Other files become wrong.
    *(
        f"{_WRONG}[{file}]"
        for file in (
            "codegen/ir/winograd.py",
            "codegen/kernels/winograd/transforms.py",
            "codegen/linking/adapts.py",
            "codegen/linking/stitching.py",
            "codegen/kernels/isa/microkernel.py",
            "codegen/kernels/loops/epilogue.py",
            "codegen/kernels/windows/window.py",
            "tuning/networks/build_job.py",
            "dialect_passes/fold_weights.py",
            "plugin/onnx_model/rewrites/structure/fold_batch_norm.py",
        )
    ),
    # The same kernels are run with longer vectors.
    *(
        f"codegen/routines/{each}_definition[x86-64-v2]"
        for each in (
            "storing/test_elementwise.py::test_results_are_those_of_the",
            "widened/test_byte_pairs.py::test_sums_are_those_of_the",
            "widened/test_word_pairs.py::test_sums_are_those_of_the",
        )
    ),
    # Other types, tiles and CPUs are tried.
    *(
        f"plugin/test_low_precision.py::test_a_trained_network_keeps_its_accuracy[{each}]"
        for each in ("f16", "mixed", "bf16")
    ),
    *(
        f"plugin/test_low_precision.py::test_every_measure_bounds_the_shipped_module[{each}]"
        for each in ("cosine", "top1", "user")
    ),
    *(
        f"plugin/test_low_precision.py::test_other_ranges_are_verified_anew[{each}]"
        for each in ("percentile", "entropy")
    ),
    "plugin/test_low_precision.py::test_a_tight_budget_leaves_exact_layers",
    "codegen/kernels/emit/test_executable.py::test_large_images_have_tiles_of_few_rows",
    "codegen/kernels/emit/test_executable.py::test_the_kernel_of_a_sum_s_parts_is_refused_too",
    "plugin/test_low_precision.py::test_what_was_found_out_once_is_not_found_out_again",
    "plugin/test_low_precision.py::test_a_chain_in_8_bits_stays_in_8_bits",
    *(
        f"codegen/routines/test_cooperative.py::test_every_tiling_multiplies_cooperative_matrices[{each}]"
        for each in ("ada", "rdna3")
    ),
    *(
        f"codegen/routines/test_dots.py::test_kernels_compute_the_layers[{each}]"
        for each in ("cooperlake-bf16", "x86-64-v3-f16")
    ),
    "codegen/routines/vector/test_neon_dots.py::test_kernels_compute_the_layers[neon_matrix_dots-i8]",
    "plugin/test_low_precision.py::test_the_plan_says_what_each_layer_gives_up_for_what",
    "codegen/routines/test_low_precision.py::test_routines_for_avx2_compute_the_layers",
    "plugin/test_low_precision.py::test_a_budget_that_nothing_keeps_names_the_nearest",
    "plugin/test_low_precision.py::test_f32_is_verified_on_all_samples_too",
    "plugin/precision/test_eligibility.py::test_a_quantised_model_is_tuned_checked_and_replayed",
    "plugin/test_stored_filters.py::test_filters_alone_are_stored_in_8_bits",
    "plugin/test_childnet_pipeline.py::test_children_compute_in_8_bits",
    "plugin/test_childnet_pipeline.py::test_pins_name_children",
    "plugin/test_precision.py::test_bf16_is_taken_only_where_it_is_asked_for",
    *(
        f"plugin/test_emulated.py::test_quantised_models_are_right_under_emulation[{each}]"
        for each in ("dynamic", "pinned", "without_i8mm")
    ),
    "plugin/test_vulkan_plan.py::test_a_network_is_planned_by_the_model[rdna3]",
    "codegen/routines/test_half_pairs.py::test_products_in_f16_compute_the_layers",
    *(f"codegen/routines/test_dots.py::test_kernels_compute_the_layers[host-{each}]" for each in ("bf16", "i8")),
    "codegen/routines/vector/test_neon_dots.py::test_kernels_multiply_by_the_instruction[neon_dots-i8]",
    "plugin/test_cuda_plan.py::test_a_network_is_planned_by_the_model",
    "codegen/routines/vector/test_neon_dots.py::test_kernels_multiply_by_the_instruction[neon_matrix_dots-i8]",
    "codegen/routines/test_gpu_winograd.py::test_the_kernel_computes_the_layers",
    "codegen/routines/test_gpu_kernels.py::test_pairs_compute_the_layers",
    "codegen/routines/test_dots.py::test_kernels_compute_the_layers[host-f16]",
    "codegen/routines/test_kernels.py::test_kernels_for_avx2_compute_the_layers",
    "codegen/routines/test_kernels.py::test_kernels_for_aarch64_compute_the_layers",
    *(
        f"plugin/test_emulated.py::test_networks_are_right_under_emulation[{each}]"
        for each in ("bert", "lenet5", "squeezenet")
    ),
    # Other forms of quantised networks.
    *(
        f"plugin/test_quantised_networks.py::test_code_for_other_cpus_gives_the_bits_of_code_with_vnni[{form}]"
        for form in forms()
        if form.layout == "qoperator"
        or (form.activations == "int8" and form.layout != "qdq")
        or form.symmetric
        or form.reduced
        or not form.by_channel
    ),
    # Other searches, plans and settings.
    "plugin/test_pipeline.py::test_a_full_search_measures_all",
    "plugin/test_pipeline.py::test_replaying_the_plan_gives_the_same_bytes",
    "plugin/test_pipeline.py::test_a_stock_model_that_ran_is_compared_by_every_later_search",
    "plugin/test_fused_pipeline.py::test_a_pin_may_keep_a_pair_apart",
    "plugin/cli/commands/test_compare.py::test_a_bisection_without_a_bound_takes_what_is_allowed",
    "plugin/test_pipeline.py::test_however_little_time_there_is_a_plan_ships_that_is_right[12.0]",
    "plugin/test_added_routine.py::test_it_is_offered",
    "plugin/test_odd_models.py::test_the_shape_that_a_refusal_advises_compiles",
    "plugin/test_detector.py::test_without_time_to_measure_it_still_compiles",
    "plugin/profiling/test_publisher.py::test_a_kept_module_that_is_wrong_is_compiled_again",
    "plugin/several/test_compilation.py::test_weights_beside_the_file_serve_all_plans",
    "plugin/cli/test_constraints.py::test_the_same_store_gives_the_same_plan",
    "plugin/cli/test_constraints.py::test_the_smallest_feasible_limit_is_met_and_one_byte_less_is_not",
    "plugin/several/test_compilation.py::test_saved_plans_give_the_same_bytes_without_measuring",
    "plugin/test_stored_filters.py::test_sessions_and_stock_tools_run_it",
    "plugin/cli/test_constraints.py::test_an_error_that_nothing_keeps_names_the_nearest",
    "plugin/cli/test_constraints.py::test_the_first_inference_is_timed_where_it_counts",
    "plugin/cli/test_plans.py::test_the_same_database_gives_the_same_bytes_in_another_folder",
    "codegen/test_source_digest.py::test_a_constant_in_any_module_changes_the_key[networks]",
    # Other disturbances end a compilation, or stop it.
    "plugin/test_faults.py::test_disturbed_workers_disturb_no_verdict[stopped]",
    *(
        f"plugin/test_faults.py::test_a_full_temporary_folder_is_said_and_leaves_no_verdict[{kibibytes}]"
        for kibibytes in (24, 160)
    ),
    "plugin/test_faults.py::test_who_is_asked_to_end_leaves_nothing[1-129]",
    "plugin/test_linking_faults.py::test_a_worker_that_ends_while_it_links_leaves_nothing[abort]",
    "plugin/test_faults.py::test_who_is_asked_twice_at_once_still_cleans_up",
    "plugin/test_faults.py::test_two_compilations_share_a_database",
    "plugin/test_full_places.py::test_a_database_that_may_only_be_read_is_read",
    "plugin/test_full_places.py::test_a_cache_folder_that_may_only_be_read_costs_the_record_alone",
    "plugin/test_failing_fusions.py::test_tuning_goes_on_without_the_pair[hang]",
    "tools/test_killing.py::test_four_that_share_a_database_lose_nothing_and_leave_nothing",
    # Benchmarks begin and record, and solvers solve long problems.
    "benchmarks/record/test_record.py::test_a_network_is_measured_and_kept_with_its_circumstances",
    "benchmarks/record/cold/test_measure.py::test_every_plan_is_recorded_in_both_states_and_those_that_fail_are_named",
    "benchmarks/record/cold/test_measure.py::test_plans_are_made_anew_and_compared_without_peers",
    "benchmarks/test_layout_run.py::test_all_steps_run_and_are_right",
    "benchmarks/test_selection.py::test_growth_covers_every_series",
    "tuning/selection/heuristics/test_pbqp.py::test_ten_thousand_layers",
    "tuning/selection/programming/test_pareto.py::test_it_is_the_front_of_all_plans",
)


def tried(variants: Sequence[_T], turn: int, config: pytest.Config) -> list[_T]:
    """The variants of a layer that are tried: all, or if there is no time the first and an eighth of the rest.

    Layers that have other turns try other eighths.
    """
    if "or not thorough" in config.option.markexpr:
        return [*variants]
    return [*variants[:1], *variants[1 + turn % _TURNS :: _TURNS]]


def in_turns(
    offered: Mapping[str, _T], turn: int, config: pytest.Config, often: Collection[str] | None = None
) -> dict[str, _T]:
    """What is tried of what several routines offer for a layer: all, or if there is no time every third.

    Routines that differ only in a format follow each other, and the next layers try the others.

    Args:
        offered: by names that begin with the routine, before its parameters.
        turn: the layer's place.
        often: routines that many layers have, so that it is enough to try them on a third of the layers; None for all.
    """
    if "or not thorough" in config.option.markexpr:
        return {**offered}
    names = [name for name in offered if often is None or _routine(name) in often]
    step = max(1, min(_PARTS, len(names)))
    left_out = {*names} - {*names[turn % step :: step]}
    return {name: each for name, each in offered.items() if name not in left_out}


def with_each_routine(
    offered: Mapping[str, Mapping[str, _T]], tried: Mapping[str, Mapping[str, _T]]
) -> dict[str, dict[str, _T]]:
    """What layers are tried by, and by each routine that none would be tried by the first layer that it is offered for.

    Args:
        offered: by layer, and by names as of ``in_turns``.
        tried: some of these, for the same layers.
    """
    found = {layer: {**each} for layer, each in tried.items()}
    known = {_routine(name) for each in tried.values() for name in each}
    for layer, each in offered.items():
        for name, variant in each.items():
            if _routine(name) not in known:
                known.add(_routine(name))
                found[layer][name] = variant
    return found


def _routine(name: str) -> str:
    return name.partition("{")[0].rpartition(".")[2]


def mark_thorough(items: Iterable[pytest.Item]) -> set[str]:
    """Mark those of some tests that are in the list as ``thorough``.

    Returns:
        Tests of the list that are not among ``items``, although others of their files are: they were renamed.
    """
    found, files = set[str](), set[str]()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        files.add(name.partition("::")[0])
        if name in TESTS:
            found.add(name)
            item.add_marker("thorough")
    return {each for each in TESTS if each.partition("::")[0] in files} - found
