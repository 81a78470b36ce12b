"""Files for any size round what the model permits, as far as the bound allows with the least sizes, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from sartor.artifact import Artifact
from sartor.codegen.ir.encoding import BlockEncoding
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.isa.multipliers import INTEGER_DOTS
from sartor.codegen.mlir.machine import machine_of
from sartor.config import CompileConfig
from sartor.open_sizes.compilation import OpenConfig, compile_open
from sartor.precision.sensitivity import Sensitivities
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.settings.size_range import SizeRange
from tests.open_models import named
from tests.plugin.onnx_model.builders import FLOAT, MS, Array, model, node

_WIDTH, _LAYERS, _MOST = 256, 2, 24
_ENCODING = BlockEncoding(4, 32, _WIDTH, _WIDTH)


def _products(level: int) -> ModelProto:
    """Two products by weights of 4 bits; between them rows are added, whose number is open: the more there are, the
    less of what the second one multiplies is rounded."""
    random, constants = np.random.default_rng(0), dict[str, Array]()
    nodes = []
    for layer in range(_LAYERS):
        codes = random.integers(0, 256, _ENCODING.codes.shape, dtype=np.uint8)
        scales = (random.random(_ENCODING.columns * _ENCODING.blocks) + 0.5).astype(np.float32) / 64
        constants |= {f"w{layer}": codes, f"s{layer}": scales}
        sizes = {"K": _WIDTH, "N": _WIDTH, "bits": 4, "block_size": 32, "accuracy_level": level}
        names = [("x", "added")[layer], f"w{layer}", f"s{layer}"]
        nodes.append(node("MatMulNBits", names, [("h", "y")[layer]], name=f"product{layer}", domain=MS, **sizes))
    constants["axes"] = np.array([0])
    total = node("ReduceSum", ["rows", "axes"], ["total"], name="total", keepdims=1)
    nodes[1:1] = [total, node("Add", ["h", "total"], ["added"], name="added")]
    inputs = [(name, (1, _WIDTH), FLOAT) for name in ("x", "rows")]
    return named(model(nodes, inputs, ["y"], constants), {"rows": ["count", _WIDTH]})


def _made(config: CompileConfig, folder: Path) -> Artifact:
    path = folder / "net.onnx"
    onnx.save(_products(4), path)
    return compile_open(path, folder / "net.vmfb", OpenConfig(config, {"rows": (SizeRange(1, _MOST), _WIDTH)}))


@pytest.mark.skipif(not INTEGER_DOTS.exists_on(machine_of(Target.create("cpu"))), reason="the CPU has no VNNI")
def test_products_are_rounded_if_the_model_permits_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sized = list[list[int]]()

    def also_of(own: Sensitivities, others: object) -> Sensitivities:
        found = also_of_sizes(own, others)  # type: ignore[arg-type]
        sized.append([each.imported.graph.inputs[1].type.shape[0] for each in (own, *found.others)])
        return found

    also_of_sizes = Sensitivities.also_of
    monkeypatch.setattr(Sensitivities, "also_of", also_of)
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0)
    made = _made(config, tmp_path)
    assert any("block_dot" in layer.variant for layer in made.plan.layers), made.plan.layers
    # What rounding does is measured with the least size as well.
    assert sized == [[_MOST, 1]]
    assert made.error is not None
    assert 1e-4 < made.error <= 1e-2
    onnx.save(_products(0), tmp_path / "exact.onnx")
    reference = OnnxRuntimeReference(tmp_path / "exact.onnx", threads=1)
    random = np.random.default_rng(0)
    with Session(made.path, threads=1) as session:
        for count in (1, 5, _MOST):
            feeds = {
                name: random.standard_normal((size, _WIDTH)).astype(np.float32)
                for name, size in (("x", 1), ("rows", count))
            }
            assert relative_error(session.run(None, feeds), reference(feeds)) < 2e-2, count


def test_nothing_is_rounded_if_the_bound_allows_none(tmp_path: Path) -> None:
    config = CompileConfig(threads=1, jobs=1, database=tmp_path / "tuning.db", time_budget=0, max_error=1e-5)
    made = _made(config, tmp_path)
    assert not any("block_dot" in layer.variant for layer in made.plan.layers)
    assert made.error is not None
    assert made.error < 1e-5
