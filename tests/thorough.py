"""Tests for which CI has no time, as others try the same in fewer ways; ``make thorough`` runs them with all others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_WRONG = "plugin/test_planted_faults.py::test_a_file_that_became_wrong_is_not_published"

TESTS = (
    # Other pages' commands run, as the guide's do.
    *(
        f"docs/test_guide.py::test_every_command_of_the_page_runs[docs/{page}]"
        for page in ("other-cpus", "kernels", "dynamic-outputs", "tuning-database", "report")
    ),
    "docs/test_devices_and_machines.py::test_machines_that_measure_for_others",
    # Other files become wrong.
    *(
        f"{_WRONG}[{file}]"
        for file in (
            "codegen/ir/winograd.py",
            "codegen/linking/adapts.py",
            "codegen/kernels/isa/microkernel.py",
            "codegen/kernels/loops/epilogue.py",
            "dialect_passes/fold_weights.py",
            "plugin/onnx_model/rewrites/structure/fold_batch_norm.py",
        )
    ),
    # Other types, tiles and CPUs are tried.
    *(f"plugin/test_low_precision.py::test_a_trained_network_keeps_its_accuracy[{each}]" for each in ("f16", "mixed")),
    "codegen/routines/test_half_pairs.py::test_products_in_f16_compute_the_layers",
    "codegen/routines/test_dots.py::test_kernels_compute_the_layers[host-bf16]",
    "codegen/routines/test_gpu_winograd.py::test_the_kernel_computes_the_layers",
    "codegen/routines/test_gpu_kernels.py::test_pairs_compute_the_layers",
    "codegen/routines/test_kernels.py::test_kernels_for_avx2_compute_the_layers",
    *(
        f"plugin/test_emulated_networks.py::test_networks_are_right_under_emulation[{each}]"
        for each in ("bert", "lenet5")
    ),
    # Other disturbances end a compilation, or stop it.
    "plugin/test_faults.py::test_disturbed_workers_disturb_no_verdict[stopped]",
    "plugin/test_faults.py::test_a_full_temporary_folder_is_said_and_leaves_no_verdict[24]",
    "plugin/test_failing_fusions.py::test_tuning_goes_on_without_the_pair[hang]",
    "tools/test_killing.py::test_four_that_share_a_database_lose_nothing_and_leave_nothing",
    # Benchmarks begin and record, and solvers solve long problems.
    "benchmarks/record/test_record.py::test_a_network_is_measured_and_kept_with_its_circumstances",
    "benchmarks/test_selection.py::test_growth_covers_every_series",
    "tuning/selection/heuristics/test_pbqp.py::test_ten_thousand_layers",
    "tuning/selection/programming/test_pareto.py::test_it_is_the_front_of_all_plans",
)


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
