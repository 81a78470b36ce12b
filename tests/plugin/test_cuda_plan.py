"""Compiling for CUDA without a GPU: the plan has kernels for the GPU, and says what its times are."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.pipeline import compile_model
from sartor.runtime.driver.device import is_available
from tests.tiny_models import Builder
from tools.cuda.ptx import assemble, assembler, ptx_of


def network() -> onnx.ModelProto:
    """Layers of each kind that there are kernels for."""
    builder = Builder()
    stem = builder.op("Relu", "stem.relu", builder.conv("stem", "x", (3, 64), strides=[2, 2]))
    deep = builder.op("Relu", "deep.relu", builder.conv("deep", stem, (64, 64), kernel=5, group=64))
    wide = builder.op("Relu", "wide.relu", builder.conv("wide", deep, (64, 128)))
    flat = builder.op("Flatten", "flat", builder.op("GlobalAveragePool", "pool", wide))
    given = builder.op("MatMul", "classes", flat, builder.weight(128, 40))
    chances = builder.op("Softmax", "y", given, axis=-1)
    return builder.model([("x", (1, 3, 64, 64))], [(chances, (1, 40))])


def test_a_network_is_planned_by_the_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if is_available("cuda"):
        pytest.skip("this machine has a GPU, so layers are measured")
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(network(), model)
    config = CompileConfig(target=Target.create("cuda", "sm_90"), jobs=1, database=tmp_path / "tuning.db")
    artifact = compile_model(model, module, config)
    assert artifact.plan.basis == "predicted by the cost model for sm_90, nothing was measured"
    assert artifact.plan.basis in caplog.text
    found = {each.layer: each.variant.partition("/")[2].partition("{")[0] for each in artifact.plan.layers}
    assert found["wide"] == "conv2d.implicit"
    assert found["deep"] == "depthwise.thread_window"
    (text,) = ptx_of(module.read_bytes())
    assert ".target sm_90" in text
    if assembler() is not None:
        assert all(each.spilled == 0 for each in assemble(text, "sm_90"))
