"""How many arithmetic operations a layer needs by its definition, whichever routine computes it."""

from __future__ import annotations

import functools
import math

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.ir.rejection import RejectionError
from sartor.codegen.mlir.operations import loop_sizes
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# Operations per iteration: two for a multiply-add, one for a comparison or addition of a pooling.
_PER_ITERATION = {
    LayerKind.CONVOLUTION: 2,
    LayerKind.DEPTHWISE: 2,
    LayerKind.CONTRACTION: 2,
    LayerKind.POOLING: 1,
}


@functools.lru_cache(maxsize=1024)
def operation_count(task: Task) -> int:
    """Operations of the op at the root of a layer; 0 for a layer without one, or of another kind.

    Taps in the padding count too. Winograd's method needs fewer multiplications, so its rate by this count may exceed
    the machine's peak.
    """
    if task.stages:
        return sum(operation_count(stage.task) for stage in task.stages)
    if task.kind not in _PER_ITERATION:
        return 0
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        try:
            iterations = math.prod(loop_sizes(rewrite.root))
        except RejectionError:
            return 0
    return _PER_ITERATION[task.kind] * iterations
