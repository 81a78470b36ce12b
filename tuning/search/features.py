"""The features of a variant for the cost model: from its task's facts, its routine's traits and its parameters.

Cycles by the routine's analytic model are divided by the least possible cycles of the task. The trees of the cost model
learn what the analytic model ignores: caches, layouts, memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sartor.codegen.analysis.task_bounds import SIZES, ideal_cycles, kind_and_sizes, moving_cycles
from sartor.codegen.ir.block_packing import FOUR_BITS, USUAL_BLOCK, block_of
from sartor.codegen.ir.machines.core import LINE_BYTES, WIDE, Core
from sartor.codegen.ir.variants.traits import TILED_SLOWDOWN, DescribedVariant
from sartor.codegen.routine_registry import families, size_names

_KINDS = ("convolution", "depthwise", "contraction", "pooling", "fused")
_BYTES = {"bf16": 2, "f16": 2, "i8": 1, FOUR_BITS[USUAL_BLOCK]: 0.625}
_NARROW_TYPES = (*_BYTES, "tf32")
_FLOAT_BYTES = 4
_CONVOLUTION, _LOOPS = "convolution", "recurrence"
# The product with the state, and all that is computed of it and of the inputs.
_DISPATCHES_OF_STEP = 2


def analytic_cycles(facts: str, variant: DescribedVariant, core: Core = WIDE) -> float | None:
    """Cycles of a variant by its routine's analytic model; None if the routine has none.

    On a GPU estimates count too: all models there are models of the GPU.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    cost = variant.traits.cost or (variant.traits.estimate if core.gpu else None)
    return None if cost is None else cost.cycles(kind_and_sizes(facts)[1], variant.parameters, core)


def analytic_seconds(facts: str, variant: DescribedVariant, core: Core = WIDE) -> float:
    """An estimate of a variant's seconds on a core without measurements: by its routine's model, but no less than its
    bytes take to move, or by its routine's ``slowdown``.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    _, sizes = kind_and_sizes(facts)
    model = variant.traits.cost or variant.traits.estimate
    if model is None:
        serial = sizes["depth"] * core.serial_cycles
        cycles = max(variant.traits.slowdown * ideal_cycles(sizes, core), serial)
        return cycles / core.hertz + stepping_seconds(facts, variant, core)
    own = _FLOAT_BYTES if variant.traits.reads_codes else _BYTES.get(_type_of(variant), _FLOAT_BYTES)
    saved = sizes["weights"] * max(own - _BYTES.get(variant.traits.weights or "", own), 0)
    moving = moving_cycles(sizes, core) * own - saved / core.bytes_per_cycle
    return max(model.cycles(sizes, variant.parameters, core), moving / _FLOAT_BYTES) / core.hertz


def seconds_of_all(facts: str, variants: Sequence[DescribedVariant], core: Core = WIDE) -> list[float]:
    """What ``analytic_seconds`` estimates of a task's variants. Where some read a weight in blocks of integers, the
    others turn it into floats first.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    has_codes = any(variant.traits.reads_codes for variant in variants)
    decoding = _decoding_seconds(facts, core) if has_codes else 0.0
    return [
        analytic_seconds(facts, variant, core) + decoding * (not variant.traits.reads_codes) for variant in variants
    ]


def _decoding_seconds(facts: str, core: Core) -> float:
    """Seconds that code by IREE takes to turn a weight in blocks of integers into floats first: to write these to
    memory and to read them, in a dispatch of its own.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    _, sizes = kind_and_sizes(facts)
    moved = 2 * _FLOAT_BYTES * sizes["depth"] * sizes["channels"]
    return (moved / core.bytes_per_cycle + core.dispatch_cycles) / core.hertz


def lowered_seconds(facts: str, variant: DescribedVariant, core: Core = WIDE) -> float:
    """About the least time that code by IREE takes for a convolution, whose output channels it has in the lanes of
    vectors; 0 for other layers, and for kernels.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    kind, sizes = kind_and_sizes(facts)
    if kind != _CONVOLUTION or variant.traits.cost or variant.traits.estimate or core.gpu:
        return 0.0
    filled = sizes["channels"] / (-(-sizes["channels"] // core.lanes) * core.lanes)
    return TILED_SLOWDOWN * sizes["operations"] / (core.operations_per_cycle * filled) / core.hertz


def stepping_seconds(facts: str, variant: DescribedVariant, core: Core = WIDE) -> float:
    """Seconds that a variant takes for the steps of a loop behind its first, if each is dispatches of its own, as in
    code by IREE: to start these, and to read from the cache the weights that they multiply the state by.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    kind, sizes = kind_and_sizes(facts)
    if kind != _LOOPS or not variant.traits.starts_steps:
        return 0.0
    # The steps are the first extent of what a loop gives.
    steps, weights = sizes["batch"], sizes["weights"]
    line = core.line_cycles if weights <= core.resident_bytes else core.far_line_cycles
    starts = (_DISPATCHES_OF_STEP * steps - 1) * core.dispatch_cycles
    return (starts + (steps - 1) * weights / LINE_BYTES * line) / core.hertz


def features(facts: str, variant: DescribedVariant, core: Core = WIDE) -> list[float]:
    """The features of a variant on a task, a list of fixed length.

    Args:
        facts: of the task.
        variant: what is asked about.
        core: of the machine, one that is ``comparable``.

    Raises:
        ValueError: if ``facts`` cannot be parsed.
    """
    kind, sizes = kind_and_sizes(facts)
    given, ideal = variant.parameters, ideal_cycles(sizes, core)
    cycles = analytic_cycles(facts, variant, core)
    moved = sizes["read"] + sizes["weights"] + sizes["written"]
    return [
        float(_KINDS.index(kind)) if kind in _KINDS else -1.0,
        *(float(variant.traits.family == family) for family in families()),
        *(float(_type_of(variant) == narrow_type) for narrow_type in _NARROW_TYPES),
        float(variant.traits.blocked),
        *(_log(sizes[size]) for size in SIZES),
        float(sizes["stride"]),
        float(sizes["operands"]),
        *(float(given.get(size_name, 0)) for size_name in size_names()),
        -1.0 if cycles is None else _log(cycles) - _log(ideal),
        _log(sizes["operations"]) - _log(moved),
        float(given.get("lines", 1) * given.get("columns", 1) * given.get("vectors", 1)),
        _log(sizes["depth"] * given.get("vectors", 0)),
        _log(sizes["channels"] & -sizes["channels"]),
    ]


def _type_of(variant: DescribedVariant) -> str:
    """The type of a variant; blocks of 4 bits are alike."""
    return FOUR_BITS[USUAL_BLOCK] if block_of(variant.dtype) else variant.dtype


def _log(value: float) -> float:
    return math.log2(max(value, 1.0))
