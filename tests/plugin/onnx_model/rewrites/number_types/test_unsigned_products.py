"""Only models with unsigned products that lack a zero point are copied to widen their operands."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from sartor.onnx_model.rewrites.number_types.unsigned_products import with_widened_operands
from tests.plugin.onnx_model.builders import model, node


@pytest.mark.parametrize(
    ("operands", "kind", "is_changed"),
    [(["a", "b"], TensorProto.UINT8, True), (["a", "b"], TensorProto.INT8, False), ("abzz", TensorProto.UINT8, False)],
)
def test_other_products_are_not_copied(operands: list[str], kind: int, *, is_changed: bool) -> None:
    given = [("a", (3, 8), kind), ("b", (8, 4), kind), ("z", (), kind)]
    built = model([node("MatMulInteger", list(operands), ["y"])], given, [("y", (3, 4), TensorProto.INT32)])
    before = built.SerializeToString()
    assert (with_widened_operands(built) is not built) == is_changed
    assert built.SerializeToString() == before
