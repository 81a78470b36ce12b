"""What a cost model sees of a variant: numbers from its task's facts and its descriptor, among them cycles by a model.

``tilings.py`` counts the cycles of register tiles; here they are put in relation to the least that the task could take.
The trees of the cost model learn what that leaves out: caches, layouts, memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sartor.codegen.kernels.tilings import Shape
from sartor.codegen.task_facts import read_facts

_DESCRIPTOR = re.compile(r"(?:\w+:)?(\w+)/\w+\.(\w+?)(_blocked)?(?:\{(.*)\})?")
_KINDS = ("convolution", "depthwise", "contraction", "pooling", "fused")
_FAMILIES = ("stock", "direct", "product", "window", "fused_winograd", "tiled", "separable", "tiles", "dots")
_WINOGRAD = "fused_winograd"
_CONVERTING = ("tiles_of_bf16", "tiles_to_f32")
_NARROW_TYPES = ("bf16", "f16", "i8")
_SIZES = (
    *("batch", "rows", "columns", "channels", "depth", "taps", "kernel_height", "kernel_width"),
    *("operations", "read", "weights", "written"),
)
_PARAMETERS = (
    *("lines", "columns", "vectors", "row_groups", "panel_groups", "unroll"),
    *("height", "width", "block", "groups", "panels"),
    *("band", "window_columns", "window_vectors"),
    *("tiles", "pixels", "depth"),
)
# Of f32 in a vector of 64 bytes; with others all cycles change by about the same factor.
_LANES = 16
_OPERATIONS_PER_CYCLE = 4 * _LANES
_BYTES_PER_CYCLE = 8
_HERTZ = 3e9
# What is no kernel takes about so much longer than a task's least.
_STOCK_SLOWER = 8.0
# A line of filters to the first-level cache from the second.
_LINE_CYCLES = 3
# Additions to encode and to decode a number of a tile in Winograd's form.
_TRANSFORM = 3
# A product of tiles takes a cycle for each row, and not less than this; to store a vector of sums takes as many.
# Meanwhile tiles are loaded: filters, mostly from the second-level cache, and pixels, which are nearer unless what a
# workgroup copies does not stay in it.
_TILE_SIZES = ("lines", "tiles", "pixels", "vectors", "depth")
_LEAST_TILE_CYCLES = 9
_FILTER_TILE_CYCLES, _PIXEL_TILE_CYCLES, _FAR_PIXEL_TILE_CYCLES = 20, 10, 20
_COPIED_BYTES = 1 << 20
# Numbers that an instruction multiplies in the place of one. Those of bf16 start every other cycle on some CPUs, but
# these mostly have a matrix unit.
_DOTS_PER_PRODUCT = {"bf16": 2, "i8": 4}
_WINOGRAD_GROUPS = {"fused_winograd_dots": _DOTS_PER_PRODUCT["bf16"], "fused_winograd_bytes": _DOTS_PER_PRODUCT["i8"]}
_BYTES = {"bf16": 2, "f16": 2, "i8": 1}
_FLOAT_BYTES = 4
_STORE_CYCLES = 4


@dataclass(frozen=True)
class Described:
    """A variant as its descriptor spells it.

    Attributes:
        family: name of its routine, whatever the layout.
        blocked: whether images lie in blocks of channels.
        parameters: of the routine; those that are several numbers are left out.
        dtype: what it computes in.
    """

    family: str
    blocked: bool
    parameters: Mapping[str, int]
    dtype: str = ""

    @property
    def form(self) -> tuple[str, bool, bool]:
        """What the neighbours see: element type, layout, and whether the result has another type."""
        return self.dtype, self.blocked, self.family in _CONVERTING

    @staticmethod
    def of(descriptor: str) -> Described:
        """What a descriptor says; of one in another form, nothing."""
        found = _DESCRIPTOR.fullmatch(descriptor)
        if found is None:
            return Described("", False, {})
        pairs = (each.partition("=") for each in (found[4] or "").split(","))
        parameters = {name: int(value) for name, _, value in pairs if value.isdigit()}
        return Described(found[2], bool(found[3]), parameters, found[1])


def ideal_seconds(facts: str) -> float:
    """About the least that a task could take: what its operations or its bytes take, whichever is more.

    Raises:
        ValueError: if ``facts`` are none.
    """
    return _ideal_cycles(_numbers(facts)[1]) / _HERTZ


def weight_bytes(facts: str) -> int:
    """Bytes of a task's weights.

    Raises:
        ValueError: if ``facts`` are none.
    """
    return _numbers(facts)[1]["weights"]


def analytic_cycles(facts: str, variant: Described) -> float | None:
    """Cycles of a kernel by a model of registers and ports; None for what is no such kernel.

    Raises:
        ValueError: if ``facts`` are none.
    """
    sizes = _numbers(facts)[1]
    if variant.family in ("direct", "product"):
        return _direct_cycles(sizes, variant.parameters)
    if variant.family.startswith("tiles"):
        return max(_tile_cycles(sizes, variant.parameters), _reading_cycles(sizes, variant.dtype))
    if variant.family.startswith("dots"):
        cycles = _direct_cycles(sizes, variant.parameters) / _DOTS_PER_PRODUCT.get(variant.dtype, 1)
        return max(cycles, _reading_cycles(sizes, variant.dtype))
    if not variant.family.startswith(_WINOGRAD):
        return None
    group = _WINOGRAD_GROUPS.get(variant.family, 1)
    return _winograd_cycles(sizes, variant.parameters, group)


def analytic_seconds(facts: str, descriptor: str) -> float:
    """A guess at what a variant takes before anything was measured: kernels by their cycles, others as slower.

    Raises:
        ValueError: if ``facts`` are none.
    """
    cycles = analytic_cycles(facts, variant := Described.of(descriptor))
    slower = 1.0 if cycles is not None or variant.family in _FAMILIES[1:] else _STOCK_SLOWER
    return slower * (ideal_seconds(facts) if cycles is None else cycles / _HERTZ)


def features(facts: str, descriptor: str) -> list[float]:
    """The features of a variant on a task, the same number for all.

    Raises:
        ValueError: if ``facts`` are none.
    """
    kind, sizes = _numbers(facts)
    variant = Described.of(descriptor)
    given, ideal = variant.parameters, _ideal_cycles(sizes)
    cycles = analytic_cycles(facts, variant)
    moved = sizes["read"] + sizes["weights"] + sizes["written"]
    return [
        float(_KINDS.index(kind)) if kind in _KINDS else -1.0,
        *(float(variant.family.startswith(each)) for each in _FAMILIES),
        *(float(variant.dtype == each) for each in _NARROW_TYPES),
        float(variant.blocked),
        *(_log(sizes[each]) for each in _SIZES),
        float(sizes["stride"]),
        float(sizes["operands"]),
        *(float(given.get(each, 0)) for each in _PARAMETERS),
        -1.0 if cycles is None else _log(cycles) - _log(ideal),
        _log(sizes["operations"]) - _log(moved),
        float(given.get("lines", 1) * given.get("columns", 1) * given.get("vectors", 1)),
        _log(sizes["depth"] * given.get("vectors", 0)),
        _log(sizes["channels"] & -sizes["channels"]),
    ]


def _numbers(facts: str) -> tuple[str, Mapping[str, int]]:
    kind, numbers = read_facts(facts)
    missing = {*_SIZES, "stride", "operands"} - numbers.keys()
    if missing:
        raise ValueError(f"'{facts}' does not say {sorted(missing)[0]}")
    return kind, numbers


def _ideal_cycles(sizes: Mapping[str, int]) -> float:
    moved = sizes["read"] + sizes["weights"] + sizes["written"]
    return max(sizes["operations"] / _OPERATIONS_PER_CYCLE, moved / _BYTES_PER_CYCLE, 1.0)


def _direct_cycles(sizes: Mapping[str, int], given: Mapping[str, int]) -> float:
    joined = sizes["taps"] == 1 and sizes["stride"] == 1
    rows, columns = (1, sizes["rows"] * sizes["columns"]) if joined else (sizes["rows"], sizes["columns"])
    tile = Shape(*(max(1, given.get(each, 1)) for each in ("lines", "columns", "vectors", "unroll")))
    vectors = -(-sizes["channels"] // _LANES)
    return tile.cycles(rows, columns, vectors, _LINE_CYCLES) * sizes["depth"] * sizes["batch"]


def _reading_cycles(sizes: Mapping[str, int], dtype: str) -> float:
    """Of weights that are read once: what is stored in a narrower type has less of them."""
    return sizes["weights"] * _BYTES.get(dtype, _FLOAT_BYTES) / _FLOAT_BYTES / _BYTES_PER_CYCLE


def _tile_cycles(sizes: Mapping[str, int], given: Mapping[str, int]) -> float:
    joined = sizes["taps"] == 1 and sizes["stride"] == 1
    rows, columns = (1, sizes["rows"] * sizes["columns"]) if joined else (sizes["rows"], sizes["columns"])
    lines, tiles, pixels, wide, depth = (max(1, given.get(each, 1)) for each in _TILE_SIZES)
    vectors = -(-sizes["channels"] // _LANES)
    blocks = -(-rows // lines) * -(-columns // (tiles * pixels)) * -(-vectors // wide)
    chunks = sizes["taps"] * -(-max(1, sizes["depth"] // sizes["taps"]) // depth)
    is_far = sizes["taps"] > 1 and sizes["read"] // max(1, given.get("row_groups", 1)) > _COPIED_BYTES
    loads = wide * _FILTER_TILE_CYCLES + lines * tiles * (_FAR_PIXEL_TILE_CYCLES if is_far else _PIXEL_TILE_CYCLES)
    products = blocks * chunks * max(lines * tiles * wide * max(pixels, _LEAST_TILE_CYCLES), loads)
    return (products + rows * columns * vectors * _STORE_CYCLES) * sizes["batch"]


def _winograd_cycles(sizes: Mapping[str, int], given: Mapping[str, int], group: int) -> float:
    height, width = max(1, given.get("height", 1)), max(1, given.get("width", 1))
    numbers = (height + sizes["kernel_height"] - 1) * (width + sizes["kernel_width"] - 1)
    tiles = -(-sizes["rows"] // height) * -(-sizes["columns"] // width)
    depth, vectors = max(1, sizes["depth"] // sizes["taps"]), -(-sizes["channels"] // _LANES)
    register = Shape(1, *(max(1, given.get(each, 1)) for each in ("columns", "vectors", "unroll")))
    products = register.cycles(1, tiles, vectors, _LINE_CYCLES) * depth / group * numbers
    transforms = _TRANSFORM * tiles * numbers * (depth / _LANES + vectors)
    return (products + transforms) * sizes["batch"]


def _log(value: float) -> float:
    return math.log2(max(value, 1.0))
