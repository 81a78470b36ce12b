"""Rewrites of one layer do not see each other's changes, although its module is parsed once for all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sartor.codegen.ir.packing import Packing, Round, Transpose
from sartor.codegen.mlir.operations import body_of
from sartor.codegen.mlir.rewriting.rewrite import Rewrite
from sartor.frontend.imported_model import ImportedModel
from tests.codegen.shared_filters import dense


def test_a_changed_rewrite_leaves_the_next_one_alone(imported_of: Callable[[str], ImportedModel]) -> None:
    task = next(layer.task for layer in imported_of("residual").graph.layers if layer.name == "conv2")
    changed, before = Rewrite.plain(task), str(Rewrite.plain(task).module)
    filters = next(index for index, weight in enumerate(task.weights) if len(weight.shape) == 4)
    changed.pack(filters, (), "tensor<1xf32>")
    first = next(iter(body_of(changed.function).operations)).operation
    first.attributes["changed"] = changed.function.attributes["sym_name"]
    assert "changed" in str(changed.module)
    assert "tensor<1xf32>" in str(changed.module)
    assert str(Rewrite.plain(task).module) == before


def test_a_weight_is_not_packed_in_two_ways() -> None:
    rewrite, steps = Rewrite.plain(dense()), (Transpose((2, 3, 1, 0)),)
    for _ in range(2):
        rewrite.set_packing(0, steps)
    with pytest.raises(ValueError, match="read in two layouts"):
        rewrite.set_packing(0, ())
    rewrite.extend_packing(0, (Round("f16"),))
    assert rewrite.packings == [Packing((*steps, Round("f16")))]
