"""Padding and filters of convolutions that kernels leave out or pack, and those that stay."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import Task
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Variant, variants_of
from sartor.codegen.kernels.layers.convolution_operands import unpadded
from sartor.codegen.mlir.iree_compiler import ir
from sartor.codegen.mlir.operations import nested
from sartor.codegen.routines import ROUTINES
from tests.codegen.shared_filters import dense, depthwise

_PAD = """func.func @layer(%x: tensor<1x8x5x5xf32>) -> tensor<RESULT> {
  %v = arith.constant VALUE : f32
  %p = tensor.pad %x low[LOW] high[HIGH] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %v : f32
  } : tensor<1x8x5x5xf32> to tensor<RESULT>
  return %p : tensor<RESULT>
}"""


def _found(low: str, high: str, value: float) -> tuple[bool, tuple[int, int]]:
    """Whether the image before the pad is found, and the padding above and left of it."""
    amounts = [[int(part) for part in listed.split(", ")] for listed in (low, high)]
    sizes = [sum(each) for each in zip((1, 8, 5, 5), *amounts, strict=True)]
    text = _PAD.replace("LOW", low).replace("HIGH", high).replace("VALUE", str(value))
    text = text.replace("RESULT", "x".join([*map(str, sizes), "f32"]))
    module = ir.Module.parse(text, ir.Context())
    with module.context:
        (pad,) = [each for each in nested(module.operation) if each.name == "tensor.pad"]
        image, padding = unpadded(pad.results[0], 0.0)
        return image == pad.operands[0], padding


def test_rows_and_columns_are_left_out() -> None:
    assert _found("0, 0, 1, 2", "0, 0, 3, 4", 0.0) == (True, (1, 2))


@pytest.mark.parametrize(
    ("low", "high", "value"),
    [
        ("0, 1, 0, 0", "0, 0, 0, 0", 0.0),
        ("0, 0, 0, 0", "0, 8, 0, 0", 0.0),
        ("0, 0, 1, 1", "2, 0, 1, 1", 0.0),
        ("0, 0, 1, 1", "0, 0, 1, 1", 1.0),
    ],
)
def test_other_padding_is_not(low: str, high: str, value: float) -> None:
    with pytest.raises(ValueError, match="padded with something other"):
        _found(low, high, value)


TARGETS = (("cpu", "sapphirerapids"), ("cpu", "aarch64:neoverse-v1"), ("vulkan", None), ("cuda", "sm_90"))


@pytest.mark.parametrize("task", [dense(), depthwise()], ids=["dense", "depthwise"])
@pytest.mark.parametrize(("device", "architecture"), TARGETS)
def test_only_stock_code_has_them(device: str, architecture: str | None, task: Task) -> None:
    target = Target.create(device, architecture)
    made = [(routine.name, next(variants_of(routine, task, target), None)) for routine in ROUTINES]
    assert {name for name, each in made if isinstance(each, Variant)} == {"stock"}
