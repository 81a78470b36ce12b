"""Adapts: every pair of layouts, on every awkward shape, run."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from sartor.codegen.adapt import adapt
from sartor.codegen.bench_module import EXPORT_PREFIX, compile_bench, physical_signature
from sartor.codegen.dispatches import lower
from sartor.codegen.layer import TensorType
from sartor.codegen.layouts import image_layout, same_bytes
from sartor.codegen.stitch import Piece
from sartor.codegen.target import Target
from sartor.runtime.device import open_device
from sartor.runtime.device_array import from_view, upload
from sartor.runtime.iree_runtime import Program
from sartor.runtime.module import open_module
from sartor.runtime.signature import TensorSpec

HOST = Target.create("cpu")
LAYOUTS = ("nchw", "nhwc", "nchw8c", "nchw16c")
SHAPES: list[tuple[int, ...]] = [(1, 48, 5, 7), (8, 16, 3, 2), (1, 16, 1, 1), (2, 32, 1, 3), (1, 16, 4, 4)]
ODD_CHANNELS: list[tuple[int, ...]] = [(1, 19, 5, 3), (3, 1, 4, 4)]

Case = tuple[tuple[int, ...], str, str]
CASES: list[Case] = [
    (shape, source, target) for shape in SHAPES for source, target in product(LAYOUTS, repeat=2) if source != target
] + [(shape, source, target) for shape in ODD_CHANNELS for source, target in (("nchw", "nhwc"), ("nhwc", "nchw"))]


def symbol(case: Case) -> str:
    shape, source, target = case
    return f"a{'x'.join(map(str, shape))}_{source}_{target}"


def tensor(case: Case, dtype: str = "f32") -> TensorType:
    return TensorType(case[0], dtype)


@pytest.fixture(scope="module")
def program() -> Program:
    """One module with every adapt."""
    implementations = {symbol(case): adapt(tensor(case), *case[1:]) for case in CASES}
    codes = lower(implementations, HOST)
    pieces = {name: Piece(name, implementations[name], code) for name, code in codes.items()}
    signatures = {
        symbol(case): physical_signature(implementations[symbol(case)], (tensor(case),), (), (tensor(case),))
        for case in CASES
    }
    module = open_module(compile_bench(HOST, pieces, signatures))
    return Program(module.native, "adapts", open_device("cpu", 1), {})


@pytest.mark.parametrize("case", CASES, ids=symbol)
def test_an_adapt_moves_every_element_where_it_belongs(case: Case, program: Program) -> None:
    logical = tensor(case)
    values = np.arange(logical.elements, dtype=np.float32).reshape(logical.shape)
    before, after = (image_layout(layout).packing(logical).apply(values) for layout in case[1:])
    (view,) = program.invoke(EXPORT_PREFIX + symbol(case), [upload(before, program.device).view])
    result = from_view(view, program.device, TensorSpec("result", "float32", after.shape)).to_host()
    assert np.array_equal(result, after)


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
