"""Operations are those of the textbook, padding included."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from sartor.codegen.analysis.operation_count import operation_count
from sartor.frontend.imported_model import ImportedModel
from tests.importing import imported_model
from tests.tiny_models import Builder

IMAGE = (1, 8, 6, 6)


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> ImportedModel:
    """One layer of each kind that counts, joined by layers that do not."""
    b = Builder()
    strided = b.conv("strided", "x", (8, 16), strides=[2, 2])
    grouped = b.conv("grouped", strided, (16, 16), group=4)
    apart = b.conv("depthwise", grouped, (16, 16), group=16)
    pooled = b.op("MaxPool", "pooled", apart, kernel_shape=[2, 2])
    soft = b.op("Softmax", "soft", b.op("Flatten", "flat", pooled), axis=1)
    b.op("Gemm", "y", soft, b.weight(64, 10), b.weight(10))
    path = tmp_path_factory.mktemp("counted") / "model.onnx"
    onnx.save(b.model([("x", IMAGE)], [("y", (1, 10))]), path)
    return imported_model(path)


def test_every_layer_counts_what_it_computes(imported: ImportedModel) -> None:
    counted = [(layer.name.partition("#")[0], operation_count(layer.task)) for layer in imported.graph.layers]
    assert {name: count for name, count in counted if count} == {
        "strided": 2 * (16 * 3 * 3) * (8 * 3 * 3),
        "grouped": 2 * (16 * 3 * 3) * (4 * 3 * 3),
        "depthwise": 2 * (16 * 3 * 3) * (3 * 3),
        "pooled": (16 * 2 * 2) * (2 * 2),
        "y": 2 * 64 * 10,
    }
    assert any(not count for _, count in counted), "a softmax counts nothing"


def test_a_batch_of_products(tmp_path: Path) -> None:
    b = Builder()
    b.op("MatMul", "y", "x", "z")
    onnx.save(b.model([("x", (2, 3, 4, 5)), ("z", (2, 3, 5, 7))], [("y", (2, 3, 4, 7))]), tmp_path / "model.onnx")
    imported = imported_model(tmp_path / "model.onnx")
    assert sum(operation_count(layer.task) for layer in imported.graph.layers) == 2 * (2 * 3) * 4 * 5 * 7
