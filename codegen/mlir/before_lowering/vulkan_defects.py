"""What IREE compiles to wrong results for Vulkan, written otherwise."""

from __future__ import annotations

from sartor.codegen.mlir.before_lowering.depthwise_loops import order_depthwise_loops
from sartor.codegen.mlir.before_lowering.widened_operands import widen_apart
from sartor.codegen.mlir.iree_compiler import ir


def avoid_defects(module: ir.Module) -> None:
    """Rewrite a module of source dialects, in place; ``drop_barriers`` has to follow once dispatches are formed."""
    order_depthwise_loops(module)
    widen_apart(module)
