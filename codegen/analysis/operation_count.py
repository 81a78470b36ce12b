"""How many arithmetic operations a layer asks for, whatever a routine makes of it."""

from __future__ import annotations

import functools
import math

from sartor.codegen.ir.layer import LayerKind, Task
from sartor.codegen.mlir.operations import loop_sizes
from sartor.codegen.mlir.rewriting.rewrite import Rewrite

# A multiply-add is two; a pooling compares or adds.
_PER_ITERATION = {
    LayerKind.CONVOLUTION: 2,
    LayerKind.DEPTHWISE: 2,
    LayerKind.CONTRACTION: 2,
    LayerKind.POOLING: 1,
}


@functools.lru_cache(maxsize=1024)
def operation_count(task: Task) -> int:
    """Operations of the op at the root of a layer; 0 for a layer without one, or of another kind.

    Windows count in full, also where they reach into the padding. Winograd's method computes the same with fewer
    multiplications: by this count it may exceed the machine's peak.
    """
    if task.stages:
        return sum(operation_count(each.task) for each in task.stages)
    if task.kind not in _PER_ITERATION:
        return 0
    rewrite = Rewrite.plain(task)
    with rewrite.module.context:
        try:
            iterations = math.prod(loop_sizes(rewrite.root))
        except ValueError:
            return 0
    return _PER_ITERATION[task.kind] * iterations
