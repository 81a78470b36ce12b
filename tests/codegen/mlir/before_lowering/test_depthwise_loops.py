"""What is written otherwise for IREE: depthwise convolutions for Vulkan, and indices along an axis."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.before_lowering.index_constants import index_constants
from sartor.codegen.mlir.before_lowering.vulkan_defects import order_depthwise_loops
from sartor.codegen.mlir.iree_compiler import compile_module, ir, load_dialects
from sartor.runtime.driver.device import open_device
from sartor.runtime.driver.device_array import from_view, upload
from sartor.runtime.driver.program import Program
from sartor.runtime.driver.signature import Array, TensorSpec
from sartor.runtime.module import open_module

_CPU = Target.create("cpu")
_TEXT = """util.func public @layer(%x: tensor<2x3x{image}xf32>, %w: tensor<3x{taps}xf32>) -> tensor<2x3x{result}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<2x3x{result}xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<2x3x{result}xf32>) -> tensor<2x3x{result}xf32>
  %y = linalg.{name} {attributes}
      ins(%x, %w : tensor<2x3x{image}xf32>, tensor<3x{taps}xf32>)
      outs(%start : tensor<2x3x{result}xf32>) -> tensor<2x3x{result}xf32> loc("the node")
  util.return %y : tensor<2x3x{result}xf32>
}}"""
_OF_TWO = "{{strides = dense<[{}, {}]> : vector<2xi64>, dilations = dense<[{}, {}]> : vector<2xi64>}}"
_CASES = {
    "plain": _TEXT.format(
        image="7x8", taps="3x3", result="5x6", name="depthwise_conv_2d_nchw_chw", attributes=_OF_TWO.format(1, 1, 1, 1)
    ),
    "strided": _TEXT.format(
        image="9x8", taps="3x2", result="4x2", name="depthwise_conv_2d_nchw_chw", attributes=_OF_TWO.format(2, 3, 1, 2)
    ),
    "line": _TEXT.format(
        image="9",
        taps="4",
        result="3",
        name="depthwise_conv_1d_ncw_cw",
        attributes="{strides = dense<2> : vector<1xi64>, dilations = dense<1> : vector<1xi64>}",
    ),
    "no attributes": _TEXT.format(
        image="4x5x6", taps="2x2x3", result="3x4x4", name="depthwise_conv_3d_ncdhw_cdhw", attributes=""
    ),
}


def _computed(text: str, feeds: list[Array], shape: tuple[int, ...]) -> Array:
    """What a module gives on the CPU, of a known shape."""
    native = open_module(compile_module(text, _CPU.flags)).native
    program = Program(native, "module", open_device("cpu", 1), {})
    (found,) = program.invoke("layer", [upload(each, program.device).view for each in feeds])
    return from_view(found, program.device, TensorSpec("y", "float32", shape)).to_host()


def _shape(text: str, value: str) -> tuple[int, ...]:
    """The shape of an argument, or of the result."""
    head, _, result = text.partition("{")[0].partition("->")
    found = re.search(rf"%{value}: tensor<([\dx]+)xf32>", head) or re.search(r"tensor<([\dx]+)xf32>", result)
    assert found is not None
    return tuple(map(int, found[1].split("x")))


@pytest.mark.parametrize("case", _CASES)
def test_loops_compute_what_the_named_operation_does(case: str) -> None:
    with ir.Context():
        module = ir.Module.parse(_CASES[case])
        order_depthwise_loops(module)
        assert module.operation.verify()
        written = module.operation.get_asm(enable_debug_info=True)
        text = str(module)
    assert "depthwise_conv" not in written
    assert '"the node"' in written
    random = np.random.default_rng(0)
    feeds = [random.standard_normal(_shape(_CASES[case], each)).astype(np.float32) for each in "xw"]
    found, expected = (_computed(each, feeds, _shape(_CASES[case], "y")) for each in (text, _CASES[case]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("stored", "summed"), [("f16", "f32"), ("i8", "i32"), ("i32", "i32")])
def test_numbers_are_widened_to_the_sums(stored: str, summed: str) -> None:
    text = _CASES["plain"].replace("xf32>, %w", f"x{stored}>, %w").replace("3x3x3xf32>) ->", f"3x3x3x{stored}>) ->")
    text = text.replace("7x8xf32>, tensor<3x3x3xf32>", f"7x8x{stored}>, tensor<3x3x3x{stored}>")
    text = text.replace("f32", summed).replace("0.0 :", "0.0 :" if summed == "f32" else "0 :")
    with ir.Context():
        module = ir.Module.parse(text)
        order_depthwise_loops(module)
        assert module.operation.verify()
        assert ("arith.ext" in str(module)) is (stored != summed)


LAYER = """util.func public @layer(%arg0: tensor<{shape}x{element}>) -> tensor<{shape}x{element}> {{
  %0 = tensor.empty() : tensor<{shape}x{element}>
  %1 = linalg.generic {{indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], \
iterator_types = ["parallel", "parallel"]}} outs(%0 : tensor<{shape}x{element}>) {{
  ^bb0(%out: {element}):
    %2 = linalg.index {axis} : index
    %3 = arith.index_cast %2 : index to {element}
    linalg.yield %3 : {element}
  }} -> tensor<{shape}x{element}>
  util.return %1 : tensor<{shape}x{element}>
}}"""


@dataclass
class Parsed:
    """The constants of a function that is valid, and the operands of its other operations, by their names."""

    constants: list[np.ndarray]
    operands: dict[str, int]


def rewritten(**layer: object) -> Parsed:
    load_dialects()
    with ir.Context():
        module = ir.Module.parse(LAYER.format(**layer))
        index_constants(module)
        assert module.operation.verify()
        ops = [operation.operation for operation in module.body.operations[0].regions[0].blocks[0].operations]
        values = [op.attributes["value"] for op in ops if op.name == "arith.constant"]
        constants = [np.array(ir.DenseElementsAttr(value)) for value in values]
        return Parsed(constants, {op.name: len(op.operands) for op in ops})


@pytest.mark.parametrize(("element", "dtype"), [("i32", np.int32), ("i64", np.int64)])
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_are_a_constant(axis: int, element: str, dtype: type) -> None:
    found = rewritten(shape="2x8", element=element, axis=axis)
    assert "linalg.generic" not in found.operands
    (constant,) = found.constants
    assert constant.dtype == dtype
    assert (constant == np.indices((2, 8))[axis]).all()


def test_one_index_is_0() -> None:
    assert rewritten(shape="1x1", element="i64", axis=0).constants == [[[0]]]


def test_many_indices_are_spread_from_a_line() -> None:
    found = rewritten(shape="80x8400", element="i64", axis=1)
    (constant,) = found.constants
    assert (constant == np.arange(8400)).all()
    assert found.operands["linalg.generic"] == 2


def test_other_code_stays() -> None:
    load_dialects()
    text = LAYER.format(shape="2x8", element="i64", axis=1).replace("yield %3", "yield %out")
    with ir.Context():
        module = ir.Module.parse(text)
        before = str(module)
        index_constants(module)
        assert str(module) == before
