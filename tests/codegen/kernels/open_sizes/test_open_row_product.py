"""Products of any number of rows, each of which is quantised by its own range when they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sartor.codegen.ir.graph import LayerGraph
from sartor.codegen.ir.layer import LayerKind
from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.ir.variants.routine import Rejected, Variant, variant_of, variants_of
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.kernels.open_sizes import open_row_product
from sartor.codegen.kernels.vector.row_scales import RowScales
from sartor.codegen.kernels.vector.row_sums import RowSums
from sartor.codegen.mlir.machine import machine_of
from sartor.codegen.routines.iree.stock import Stock
from sartor.codegen.routines.vector.product import RowScaledProduct
from sartor.frontend.imported_model import ImportedModel
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from tests.codegen.routines.rounded_rows import REORDERING, rounded_rows, rounded_weight
from tests.dialect_passes.test_opening import TARGET, opened
from tests.open_models import named, saved
from tests.tiny_models import Builder

DEPTH, WIDTH, COLUMNS, GROUPS, BLOCK = 69, 70, 4, 3, 2
BATCH, ROWS = Symbol("batch", 1, 3), Symbol("rows", 1, 61)
# One row, less than a tile, fewer tiles than workgroups, one less and one more than blocks, and the largest.
SIZES = [(1, 1), (1, 2), (1, 3), (1, 4), (1, 5), (1, 7), (1, 8), (1, 11), (1, 13), (2, 9), (1, 23), (1, 24), (1, 25)]
SIZES += [(1, 47), (3, 16), (1, 49), (1, 53), (3, 61)]
TILES = {"columns": COLUMNS, "lines": 1, "panel_groups": 1, "row_groups": GROUPS, "unroll": 2, "vectors": 1}

pytestmark = pytest.mark.skipif(
    INTEGER_DOTS.refusal(machine_of(TARGET)) is not None, reason="the CPU does not multiply 8 bits"
)


@dataclass(frozen=True)
class Network:
    """A product with an addition behind it, of any number of rows."""

    graph: LayerGraph
    model: ImportedModel

    def session(self, path: Path, parameters: dict[str, int]) -> Session:
        code = dict[str, Variant]()
        for layer in self.graph.layers:
            is_product = layer.task.kind is LayerKind.CONTRACTION
            routine, own = (RowScaledProduct(), parameters) if is_product else (Stock(), {})
            found = variant_of(routine, layer.task, own, TARGET)
            assert isinstance(found, Variant), found
            code[layer.name] = found
        assert "row_dots" in {each.routine for each in code.values()}
        build_net(SplitNetwork(self.graph, code), self.model.weights, TARGET, "", NetFiles(path, None))
        return Session(path, signature=net_signature((self.graph.inputs, self.graph.outputs)), threads=2)

    def expected(self, x: Array, side: Array) -> Array:
        (weight,) = (each for each in self.model.weights.values() if each.shape == (DEPTH, WIDTH))
        found = rounded_rows(x.reshape(-1, DEPTH)) @ rounded_weight(weight.astype(np.float64))
        return np.asarray(np.maximum(found.reshape(side.shape) + side, 0))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    build = Builder()
    product = build.op("MatMul", "product", "x", build.weight(DEPTH, WIDTH))
    build.op("Relu", "y", build.op("Add", "sum", product, "side"))
    wide: list[int | str] = ["batch", "rows", WIDTH]
    dims: dict[str, list[int | str]] = {"x": ["batch", "rows", DEPTH], "side": wide, "y": wide}
    model = build.model([("x", [1] * 3), ("side", [1] * 3)], [("y", [1] * 3)])
    path = saved(named(model, dims), tmp_path_factory.mktemp("rows") / "model.onnx")

    def shapes(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        rows = sizes["batch"], sizes["rows"]
        return {"x": (*rows, DEPTH), "side": (*rows, WIDTH)}

    return Network(*opened(path, [BATCH, ROWS], shapes))


def wrong_sizes(session: Session, network: Network) -> list[tuple[int, int]]:
    """The sizes at which a row is not the product of its rounded numbers by rounded weights."""
    wrong = []
    for size in SIZES:
        random = np.random.default_rng(size)
        scales = 10.0 ** random.uniform(-3, 3, (*size, 1))
        rows = random.standard_normal((*size, DEPTH)) + random.uniform(-2, 2, scales.shape)
        rows[..., 1] *= 60
        rows[-1, -1, -1] = -1e4
        x, side = (rows * scales).astype(np.float32), random.standard_normal((*size, WIDTH)).astype(np.float32)
        (found,) = session.run(None, {"x": x, "side": side})
        bound = REORDERING * np.maximum(np.abs(x).max(-1, keepdims=True) * DEPTH**0.5, 1)
        if not (np.abs(found - network.expected(x, side)) <= bound).all():
            wrong.append(size)
    return wrong


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few tiles, so that few rows have several of them."""
    pitch = RowScales(None, DEPTH, 4, 1, 1).pitch  # type: ignore[arg-type]
    monkeypatch.setattr(open_row_product, "_BLOCK_BYTES", BLOCK * COLUMNS * pitch)


@pytest.mark.usefixtures("short_blocks")
@pytest.mark.parametrize(("groups", "panels"), [(GROUPS, 1), (1, 1), (1, 3), (2, 2)])
def test_any_number_of_rows_is_rounded_row_by_row(groups: int, panels: int, network: Network, tmp_path: Path) -> None:
    session = network.session(tmp_path / "model.vmfb", {**TILES, "row_groups": groups, "panel_groups": panels})
    assert wrong_sizes(session, network) == []


def test_offered_tiles_are_right(network: Network, tmp_path: Path) -> None:
    (task,) = (each.task for each in network.graph.layers if each.task.kind is LayerKind.CONTRACTION)
    found = [each for each in variants_of(RowScaledProduct(), task, TARGET) if not isinstance(each, Rejected)]
    assert found
    for number, variant in enumerate(found[:2]):
        session = network.session(tmp_path / f"{number}.vmfb", dict(variant.parameters))  # type: ignore[arg-type]
        assert wrong_sizes(session, network) == []


def heights(rows: int) -> set[int]:
    """Rows of the register tiles that so many rows are cut into."""
    tiles = -(-rows // COLUMNS)
    return {rows // tiles, -(-rows // tiles)}


@pytest.mark.usefixtures("short_blocks")
def test_the_scale_of_a_neighbour_in_tiles_of_one_height_is_noticed_at_the_sizes_that_have_them(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reals, at = RowSums.reals, 3

    def planted(own: RowSums, asm: Any, nest: Any, memories: Any, tile: Any, *rest: Sequence[Any]) -> Any:
        if tile.run.width != at:
            return reals(own, asm, nest, memories, tile, *rest)
        first = RowSums._first
        with monkeypatch.context() as patch:
            patch.setattr(RowSums, "_first", lambda *given: (first(*given)[0], asm.add(first(*given)[1], 1)))
            return reals(own, asm, nest, memories, tile, *rest)

    monkeypatch.setattr(RowSums, "reals", planted)
    session = network.session(tmp_path / "model.vmfb", TILES)
    assert wrong_sizes(session, network) == [size for size in SIZES if at in heights(size[0] * size[1])]
