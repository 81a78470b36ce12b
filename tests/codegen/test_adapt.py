"""Adapts: every pair of layouts, on every awkward shape, with and without a change of element type, run."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sartor.codegen.adapt import adapt
from sartor.codegen.bench_module import EXPORT_PREFIX, compile_bench, physical_signature
from sartor.codegen.dispatches import lower
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import form_packing, physical_type, same_bytes
from sartor.codegen.stitch import Piece
from sartor.codegen.target import Target
from sartor.runtime.device import open_device
from sartor.runtime.device_array import from_view, upload
from sartor.runtime.iree_runtime import Program
from sartor.runtime.module import open_module
from sartor.runtime.signature import TensorSpec
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
    (shape, *forms)
    for shape, source, target in [
        *(((2, 32, 5, 3), source, target) for source, target in product(LAYOUTS, repeat=2)),
        *(((1, 16, 1, 1), source, target) for source, target in (("nchw", "nhwc"), ("nhwc", "nchw16c"))),
        *((shape, "nchw", target) for shape in ODD_CHANNELS for target in ("nchw", "nhwc")),
        *((shape, "nd", "nd") for shape in ((), (1,), (37,), (3, 5), (2, 3, 5), (1, 2, 1, 3, 2))),
    ]
    for forms in ((f"bf16@{source}", target), (source, f"bf16@{target}"))
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
    *((shape, *forms) for shape in ((), (37,)) for forms in (("nd", "i8@nd"), ("i8@nd", "nd"))),
]
ALL = [*CASES, *ROUNDED, *NARROW, *CROSSED, *QUANTISED]
# By a power of two and an even number, so that ties are ties on the device too.
RANGE = QuantisedRange(2.0**-4, 8, "int8")


def symbol(case: Case) -> str:
    shape, source, target = case
    return f"a{'x'.join(map(str, shape))}_{source}_{target}".replace("@", "_")


def tensor(case: Case, dtype: str = "f32") -> TensorType:
    return TensorType(case[0], dtype)


@pytest.fixture(scope="module")
def program() -> Program:
    """One module with every adapt."""
    implementations = {symbol(case): adapt(tensor(case), *case[1:]) for case in ALL}
    codes = lower(implementations, HOST)
    pieces = {name: Piece(name, implementations[name], code) for name, code in codes.items()}
    signatures = {
        symbol(case): physical_signature(implementations[symbol(case)], (tensor(case),), (), (tensor(case),))
        for case in ALL
    }
    module = open_module(compile_bench(HOST, pieces, signatures))
    return Program(module.native, "adapts", open_device("cpu", 1), {})


@pytest.mark.parametrize("case", [*CASES, *NARROW], ids=symbol)
def test_an_adapt_moves_every_element_where_it_belongs(case: Case, program: Program) -> None:
    logical = tensor(case)
    values = np.arange(logical.elements, dtype=np.float32).reshape(logical.shape)
    before, after = (form_packing(logical, form).apply(values) for form in case[1:])
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
    stored = form_packing(logical, case[1]).apply(values)
    given = stored.astype(np.float32)
    expected = form_packing(logical, case[2]).apply(logical_values(logical, case[1], given))
    result = converted(program, case, stored).astype(np.float32)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


@pytest.mark.parametrize("case", QUANTISED, ids=symbol)
def test_an_adapt_quantises_by_the_range_of_its_tensor(case: Case, program: Program) -> None:
    """To the nearest step, ties to even, and numbers beyond the range to its ends."""
    logical, source, target = tensor(case), *case[1:]
    # Of eight bits, which bf16 has, too.
    steps = np.random.default_rng(0).integers(-255, 256, logical.elements)
    steps = np.where(np.arange(logical.elements) % 2, steps, steps / 2)
    values = (steps * RANGE.scale).astype(np.float32).reshape(logical.shape)
    result = converted(program, case, in_form(logical, source, values))
    real = RANGE.round(values).astype(np.float32) if source.startswith("i8@") else values
    np.testing.assert_array_equal(result, in_form(logical, target, real))


def in_form(logical: TensorType, form: str, values: np.ndarray) -> np.ndarray:
    """How real numbers lie in memory."""
    if not form.startswith("i8@"):
        return form_packing(logical, form).apply(values)
    return RANGE.quantise(form_packing(logical, form.removeprefix("i8@")).apply(values))


def converted(program: Program, case: Case, before: np.ndarray) -> np.ndarray:
    """What the device makes of an array that lies in memory in the case's first form."""
    after = physical_type(tensor(case), case[2])
    ranges = [RANGE.numbers] * len(adapt(tensor(case), *case[1:]).ranges)
    (view,) = program.invoke(
        EXPORT_PREFIX + symbol(case), [upload(each, program.device).view for each in (before, *ranges)]
    )
    spec = TensorSpec("result", after.numpy_dtype.name, after.shape)
    return from_view(view, program.device, spec).to_host()


def logical_values(logical: TensorType, form: str, stored: np.ndarray) -> np.ndarray:
    """An array of f32 that lies in memory in a form, as ONNX has it."""
    places = form_packing(logical, form.rpartition("@")[2]).apply(np.arange(logical.elements).reshape(logical.shape))
    result = np.empty(logical.elements, np.float32)
    result[places.ravel()] = stored.ravel()
    return result.reshape(logical.shape)


def test_an_adapt_between_equal_bytes_moves_nothing() -> None:
    for shape, source, target in CASES:
        logical = TensorType(shape, "f32")
        body = adapt(logical, source, target).body
        assert ("linalg" in body) == (not same_bytes(logical, source, target)), (shape, source, target)


def test_an_adapt_has_the_layouts_it_joins() -> None:
    code = adapt(TensorType((1, 16, 4, 4), "f16"), "nhwc", "nchw16c")
    assert (code.inputs, code.output, code.packings) == (("nhwc",), "nchw16c", ())
    assert "tensor<1x4x4x16xf16>) -> tensor<1x1x4x4x16xf16>" in code.body


def test_channels_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="19 channels do not divide into blocks of 16"):
        adapt(TensorType((1, 19, 2, 2), "f32"), "nchw", "nchw16c")


def test_blocks_that_do_not_nest_are_refused() -> None:
    with pytest.raises(ValueError, match="do not nest"):
        adapt(TensorType((1, 48, 2, 2), "f32"), "nchw16c", "nchw24c")


def test_an_adapt_that_converts_names_both_forms() -> None:
    code = adapt(TensorType((1, 16, 4, 4), "f32"), "nchw", "bf16@nhwc")
    assert (code.inputs, code.output, code.packings) == (("nchw",), "bf16@nhwc", ())
    assert "tensor<1x16x4x4xf32>) -> tensor<1x4x4x16xbf16>" in code.body
    assert "arith.truncf" in code.body
    assert "arith.extf" in adapt(TensorType((3,), "f32"), "bf16@nd", "nd").body
