"""Adapts: every pair of layouts, on every awkward shape, with and without a change of element type, run."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.layouts import layout_packing
from sartor.codegen.ir.schema import Schema, same_bytes
from sartor.codegen.ir.target import Target
from sartor.codegen.linking.adapts import AdaptKind, adapt
from sartor.codegen.linking.bench_module import compile_bench, physical_signature
from sartor.codegen.linking.names import EXPORT_PREFIX
from sartor.codegen.linking.pieces import Piece
from sartor.codegen.mlir.dispatches import lower
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import TensorSpec
from sartor.runtime.module import open_module
from sartor.tuning.calibration.quantised_range import QuantisedRange

HOST = Target.create("cpu")
LAYOUTS = ("nchw", "nhwc", "nchw8c", "nchw16c")
SHAPES: list[tuple[int, ...]] = [(1, 48, 5, 7), (8, 16, 3, 2), (1, 16, 1, 1), (2, 32, 1, 3), (1, 16, 4, 4)]
ODD_CHANNELS: list[tuple[int, ...]] = [(1, 19, 5, 3), (3, 1, 4, 4)]

Case = tuple[tuple[int, ...], str, str]
CASES: list[Case] = [
    (shape, source, target) for shape in SHAPES for source, target in product(LAYOUTS, repeat=2) if source != target
] + [(shape, source, target) for shape in ODD_CHANNELS for source, target in (("nchw", "nhwc"), ("nhwc", "nchw"))]
ROUNDED = [
    (shape, *ends)
    for shape, source, target in [
        *(((2, 32, 5, 3), source, target) for source, target in product(LAYOUTS, repeat=2)),
        *(((1, 16, 1, 1), source, target) for source, target in (("nchw", "nhwc"), ("nhwc", "nchw16c"))),
        *((shape, "nchw", target) for shape in ODD_CHANNELS for target in ("nchw", "nhwc")),
        *((shape, "nd", "nd") for shape in ((), (1,), (37,), (3, 5), (2, 3, 5), (1, 2, 1, 3, 2))),
    ]
    for ends in ((f"bf16@{source}", target), (source, f"bf16@{target}"))
]
NARROW = [
    ((2, 32, 5, 3), f"bf16@{source}", f"bf16@{target}") for source, target in (("nchw", "nhwc"), ("nhwc", "nchw8c"))
]
CROSSED = [
    ((2, 32, 5, 3), f"{before}@{source}", f"{after}@{target}")
    for before, after in (("bf16", "f16"), ("f16", "bf16"))
    for source, target in (("nhwc", "nhwc"), ("nchw", "nhwc"))
]
QUANTISED = [
    *(((2, 32, 5, 3), source, target) for source, target in (("nchw", "i8@nhwc"), ("i8@nhwc", "nchw"))),
    *(((2, 32, 5, 3), source, target) for source, target in (("nhwc", "i8@nhwc"), ("i8@nhwc", "nchw8c"))),
    *(((2, 32, 5, 3), source, target) for source, target in (("bf16@nchw", "i8@nhwc"), ("i8@nhwc", "bf16@nhwc"))),
    *(((2, 32, 5, 3), source, target) for source, target in (("f16@nhwc", "i8@nhwc"), ("i8@nhwc", "i8@nchw"))),
    *(((1, 19, 5, 3), source, target) for source, target in (("nchw", "i8@nhwc"), ("i8@nhwc", "nchw"))),
    *((shape, *ends) for shape in ((), (37,)) for ends in (("nd", "i8@nd"), ("i8@nd", "nd"))),
]
ALL = [*CASES, *ROUNDED, *NARROW, *CROSSED, *QUANTISED]
# By a power of two and an even number, so that ties are ties on the device too.
RANGE = QuantisedRange(2.0**-4, 8, "int8")


def symbol(case: Case) -> str:
    shape, source, target = case
    return f"a{'x'.join(map(str, shape))}_{source}_{target}".replace("@", "_")


def tensor(case: Case) -> TensorType:
    return TensorType(case[0], "f32")


def schema(text: str) -> Schema:
    """A layout of f32, or of the type before it."""
    return Schema.parse(f"cpu:{text}" if "@" in text else f"cpu:f32@{text}")


def ends(case: Case) -> tuple[Schema, Schema]:
    """What a case converts from and to."""
    return schema(case[1]), schema(case[2])


@pytest.fixture(scope="module")
def program() -> Program:
    """One module with every adapt."""
    implementations = {symbol(case): adapt(tensor(case), *ends(case)) for case in ALL}
    codes = lower(implementations, HOST)
    pieces = {name: Piece(name, implementations[name], code) for name, code in codes.items()}
    signatures = {
        symbol(case): physical_signature(implementations[symbol(case)], (tensor(case),), (), (tensor(case),))
        for case in ALL
    }
    module = open_module(compile_bench(HOST, pieces, signatures, repeated=()))
    return Program(module.native, "adapts", open_device("cpu", 1), {})


@pytest.mark.parametrize("case", [*CASES, *NARROW], ids=symbol)
def test_an_adapt_moves_every_element_where_it_belongs(case: Case, program: Program) -> None:
    logical = tensor(case)
    values = np.arange(logical.elements, dtype=np.float32).reshape(logical.shape)
    before, after = (each.packing(logical).apply(values) for each in ends(case))
    assert np.array_equal(converted(program, case, before), after)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("case", [*ROUNDED, *NARROW, *CROSSED], ids=symbol)
def test_an_adapt_rounds_to_nearest_and_widens_exactly(case: Case, program: Program) -> None:
    """Numbers that bf16 has none of, ties, and what is no number are all treated as numpy does."""
    logical = tensor(case)
    numbers = np.random.default_rng(0).standard_normal(logical.elements).astype(np.float32) * 1e3
    for index, special in enumerate((1 + 2.0**-8, 1 + 3 * 2.0**-8, -0.0, np.inf, -np.inf, 2.0**-126, 3.4e38, np.nan)):
        numbers[(7 * index) % len(numbers)] = special
    values = numbers.reshape(logical.shape)
    source, target = ends(case)
    stored = source.packing(logical).apply(values)
    given = stored.astype(np.float32)
    expected = target.packing(logical).apply(logical_values(logical, source, given))
    result = converted(program, case, stored).astype(np.float32)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


@pytest.mark.parametrize("case", QUANTISED, ids=symbol)
def test_an_adapt_quantises_by_the_range_of_its_tensor(case: Case, program: Program) -> None:
    """To the nearest step, ties to even, and numbers beyond the range to its ends."""
    logical, (source, target) = tensor(case), ends(case)
    # Of eight bits, which bf16 has, too.
    steps = np.random.default_rng(0).integers(-255, 256, logical.elements)
    steps = np.where(np.arange(logical.elements) % 2, steps, steps / 2)
    values = (steps * RANGE.scale).astype(np.float32).reshape(logical.shape)
    result = converted(program, case, stored_in(source, logical, values))
    real = RANGE.round(values).astype(np.float32) if source.quantises(logical) else values
    np.testing.assert_array_equal(result, stored_in(target, logical, real))


def stored_in(found: Schema, logical: TensorType, values: np.ndarray) -> np.ndarray:
    """How real numbers lie in memory."""
    packed = found.packing(logical).apply(values)
    return RANGE.quantise(packed) if found.quantises(logical) else packed


def converted(program: Program, case: Case, before: np.ndarray) -> np.ndarray:
    """What the device makes of an array that lies in memory in the case's first schema."""
    after = ends(case)[1].physical(tensor(case))
    ranges = [RANGE.numbers] * len(adapt(tensor(case), *ends(case)).ranges)
    (view,) = program.invoke(
        EXPORT_PREFIX + symbol(case), [upload(each, program.device).view for each in (before, *ranges)]
    )
    spec = TensorSpec("result", after.numpy_dtype.name, after.shape)
    return from_view(view, program.device, spec).to_host()


def logical_values(logical: TensorType, found: Schema, stored: np.ndarray) -> np.ndarray:
    """An array of f32 that lies in memory in a schema, as ONNX has it."""
    places = layout_packing(logical, found.layout).apply(np.arange(logical.elements).reshape(logical.shape))
    result = np.empty(logical.elements, np.float32)
    result[places.ravel()] = stored.ravel()
    return result.reshape(logical.shape)


def test_an_adapt_between_equal_bytes_moves_nothing() -> None:
    for case in CASES:
        body = adapt(tensor(case), *ends(case)).body
        assert ("linalg" in body) == (not same_bytes(tensor(case), *ends(case))), case


def test_an_adapt_has_the_layouts_it_joins() -> None:
    source, target = schema("f16@nhwc"), schema("f16@nchw16c")
    code = adapt(TensorType((1, 16, 4, 4), "f16"), source, target)
    assert (code.inputs, code.outputs, code.packings) == ((source,), (target,), ())
    assert "tensor<1x4x4x16xf16>) -> tensor<1x1x4x4x16xf16>" in code.body


def test_channels_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="19 channels do not divide into blocks of 16"):
        adapt(TensorType((1, 19, 2, 2), "f32"), schema("nchw"), schema("nchw16c"))


def test_blocks_that_do_not_nest_are_refused() -> None:
    with pytest.raises(ValueError, match="do not nest"):
        adapt(TensorType((1, 48, 2, 2), "f32"), schema("nchw16c"), schema("nchw24c"))


def test_an_adapt_that_converts_has_the_types_it_joins() -> None:
    source, target = schema("nchw"), schema("bf16@nhwc")
    code = adapt(TensorType((1, 16, 4, 4), "f32"), source, target)
    assert (code.inputs, code.outputs, code.packings) == ((source,), (target,), ())
    assert "tensor<1x16x4x4xf32>) -> tensor<1x4x4x16xbf16>" in code.body
    assert "arith.truncf" in code.body
    assert "arith.extf" in adapt(TensorType((3,), "f32"), schema("bf16@nd"), schema("nd")).body


def test_an_edge_needs_a_conversion_where_its_ends_disagree() -> None:
    logical, source, target = TensorType((1, 16, 4, 4), "f32"), schema("nchw"), schema("bf16@nhwc")
    assert AdaptKind.between(logical, source, target) == AdaptKind(str(logical), source, target)
    assert AdaptKind.between(logical, target, target) is None


def test_a_number_of_8_bits_is_converted_by_a_range_only_where_it_stands_for_another() -> None:
    image = (1, 16, 4, 4)
    assert adapt(TensorType(image, "f32"), schema("i8@nchw"), schema("i8@nhwc")).ranges == (0, None)
    assert adapt(TensorType(image, "i8"), schema("i8@nchw"), schema("i8@nhwc")).ranges == ()
