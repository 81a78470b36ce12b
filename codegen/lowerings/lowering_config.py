"""Attributes that tell IREE's CPU code generator how to lower an op."""

from __future__ import annotations

from collections.abc import Sequence


def root_config(parallel: Sequence[int], reduction: Sequence[int], pipeline: str) -> str:
    """``compilation_info`` of the root of a dispatch, which determines how the dispatch is lowered.

    Args:
        parallel: register tile over the parallel loops, which come first.
        reduction: step of each reduction loop.
        pipeline: name of one of IREE's CPU pipelines. Loops that tiles do not divide are peeled, not masked.
    """
    zeros = [0] * len(reduction)
    tiles = {
        "distribution": [0] * (len(parallel) + len(reduction)),
        "vector_common_parallel": [*parallel, *zeros],
        "vector_reduction": [*([0] * len(parallel)), *reduction],
    }
    listed = ", ".join(f"{name} = {sizes}" for name, sizes in tiles.items())
    return (
        f"#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<{listed}>, translation_info = "
        f"#iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<{pipeline}>, {{enable_loop_peeling}}>>"
    )


def follower_config(parallel: Sequence[int]) -> str:
    """``lowering_config`` of an elementwise op in the root's dispatch."""
    return f"#iree_cpu.lowering_config<vector_common_parallel = {list(parallel)}>"
