"""Tile sizes fit the registers and the layer; operations are those of the textbook."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from sartor.codegen.analysis.operation_count import operation_count
from sartor.codegen.analysis.register_tiles import balanced, register_tiles, row_block, vector_tiles
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.machine import Machine, machine_of
from sartor.frontend.imported_model import ImportedModel
from tests.importing import imported_model
from tests.tiny_models import Builder

AVX512 = Machine(64, 28)
AVX2 = Machine(32, 12)
ROWS = (1, 2, 7, 13, 17, 35, 49, 56, 71, 73, 147, 149, 3136)
COLUMNS = (1, 3, 8, 16, 19, 24, 32, 48, 64, 96, 144, 255, 256, 1000, 1001)


@pytest.mark.parametrize("machine", [AVX512, AVX2])
@pytest.mark.parametrize("columns", COLUMNS)
def test_tiles_fit(columns: int, machine: Machine) -> None:
    for rows in ROWS:
        tiles = register_tiles(rows, columns, 3, machine)
        assert 1 <= len(tiles) <= 4
        assert len(set(tiles)) == len(tiles)
        for tile in tiles:
            vectors = -(-tile.columns // machine.lanes)
            assert tile.rows * vectors <= machine.accumulators
            assert tile.rows <= rows
            assert columns % tile.panel == 0
            assert tile.columns <= tile.panel
            assert tile.columns & (tile.columns - 1) == 0
            assert tile.depth <= 3


def test_the_best_guess_fills_the_registers() -> None:
    (first, *_) = register_tiles(56, 64, 64, AVX512)
    assert (first.rows, first.columns, first.depth) == (14, 32, 1)
    (first, *_) = register_tiles(56, 64, 64, AVX2)
    assert (first.rows, first.columns, first.depth) == (6, 16, 1)


@pytest.mark.parametrize("columns", COLUMNS)
def test_tiles_of_one_row_fit(columns: int) -> None:
    for tile in vector_tiles(columns, 512, AVX512):
        assert tile.rows == 1
        assert columns % tile.panel == 0
        assert tile.columns <= tile.panel


@pytest.mark.parametrize(
    ("extent", "tile", "expected"), [(56, 14, 14), (17, 14, 9), (71, 14, 12), (7, 14, 7), (1, 8, 1)]
)
def test_balanced_tiles(extent: int, tile: int, expected: int) -> None:
    assert balanced(extent, tile) == expected


@pytest.mark.parametrize("rows", ROWS)
def test_row_blocks_divide_and_leave_some_workgroups(rows: int) -> None:
    for groups in (1, 3, 16):
        block = row_block(rows, groups)
        assert rows % block == 0
        assert block == 1 or (rows // block) * groups >= 8


@pytest.mark.parametrize(
    ("level", "vector", "accumulators"),
    [("x86-64-v4", 64, 28), ("x86-64-v3", 32, 12), ("aarch64:neoverse-n1", 16, 28)],
)
def test_the_compiler_knows_the_machine(level: str, vector: int, accumulators: int) -> None:
    machine = machine_of(Target.create("cpu", level))
    assert (machine.vector_bytes, machine.accumulators) == (vector, accumulators)
    assert (machine.lanes, machine.registers) == (vector // 4, accumulators + 4)


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
