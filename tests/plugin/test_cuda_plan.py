"""Compiling for CUDA without a GPU: the plan has kernels for the GPU, and says what its times are."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from sartor.cli.apps import app
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.costing.layer_costs import make_tuner
from sartor.pipeline import compile_model
from sartor.policies import Precision
from sartor.progress import silent
from sartor.runtime.driver.device import is_available
from sartor.runtime.manifest import read_manifest
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.records.measurement import Measurement, Status
from sartor.tuning.store.store import Store
from sartor.tuning.workers.pool import WorkerPool
from tests.importing import imported_model
from tests.tiny_models import Builder
from tools.cuda.assembler.ptx import assemble, assembler, instructions, ptx_of

GPU = "NVIDIA A100 [1]"


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


def test_tf32_is_planned_where_it_is_allowed_and_named_in_the_manifest(tmp_path: Path) -> None:
    builder = Builder()
    product = builder.op("MatMul", "y", "x", builder.weight(256, 64))
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(builder.model([("x", (64, 256))], [(product, (64, 64))]), model)
    target = Target.create("cuda", "sm_80")
    config = CompileConfig(target=target, jobs=1, database=tmp_path / "tuning.db", precision=Precision.TF32)
    compile_model(model, module, config)
    manifest = read_manifest(module)
    assert '"cuda:tf32/matmul.implicit{' in json.dumps(dict(manifest.plan))
    (text,) = ptx_of(module.read_bytes())
    count = instructions(text, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    assert instructions(text, "mma.sync") == {"mma.sync": sum(count.values())}
    # One product for each fragment of LHS and RHS, not three.
    exact = replace(config, precision=Precision.F32)
    compile_model(model, module, exact)
    assert "tf32" not in json.dumps(dict(read_manifest(module).plan))


def test_a_plan_follows_from_an_imported_database_alone(tmp_path: Path) -> None:
    if is_available("cuda"):
        pytest.skip("this machine has a GPU, so layers are measured")
    config = CompileConfig(target=Target.create("cuda", "sm_80"), jobs=1, database=tmp_path / "here.db")
    check_imported_database(config, GPU, ".implicit{", tmp_path)


def check_imported_database(config: CompileConfig, gpu: str, routine: str, folder: Path) -> None:
    """Another variant of a routine is planned than by the model, where a database says that a GPU ran it fastest."""
    builder = Builder()
    product = builder.op("MatMul", "y", "x", builder.weight(256, 64))
    model, there = folder / "net.onnx", folder / "there.db"
    onnx.save(builder.model([("x", (64, 256))], [(product, (64, 64))]), model)
    predicted = compile_model(model, folder / "predicted.vmfb", config).plan.layers[0].variant
    imported = imported_model(model)
    (case,) = tuned_cases(imported.graph, find_candidates(imported, config.planning, everything=False).variants)
    variants = [each.descriptor for each in case.variants]
    fastest = next(each for each in variants if routine in each and each != predicted)
    with Store.open(there) as store, WorkerPool(1) as pool:
        tuner = make_tuner(store, pool, config.planning.target, silent)
        for variant in variants:
            key = replace(tuner.key(case, variant), hardware=gpu)
            store.put(Measurement(key, Status.OK, (1e-6 if variant == fastest else 1e-3,), facts=case.facts))
    file = str(folder / "tuning.jsonl")
    for action, database in (("export", there), ("import", config.database)):
        assert CliRunner().invoke(app, ["db", action, file, "--tuning-db", str(database)]).exit_code == 0
    plan = compile_model(model, folder / "measured.vmfb", config).plan
    assert plan.layers[0].variant == fastest
    assert plan.basis == f"measured on another machine, {gpu}"


@pytest.mark.parametrize("order", [None, (0, 2, 1), (1, 2, 0)], ids=["keys by columns", "turned", "by heads"])
def test_attention_is_one_kernel_of_the_plan(order: tuple[int, int, int] | None, tmp_path: Path) -> None:
    builder, shape = Builder(), (12, 128, 64)
    turned = builder.op("Transpose", "turned", "k", perm=order) if order else "k"
    chances = builder.op("Softmax", "chances", builder.op("MatMul", "scores", "q", turned), axis=-1)
    context = builder.op("MatMul", "context", chances, "v")
    keys = {None: (12, 64, 128), (0, 2, 1): shape, (1, 2, 0): (128, 12, 64)}[order]
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(builder.model([("q", shape), ("k", keys), ("v", shape)], [(context, shape)]), model)
    target = Target.create("cuda", "sm_90")
    config = CompileConfig(target=target, jobs=1, database=tmp_path / "tuning.db")
    (layer,) = compile_model(model, module, config).plan.layers
    assert layer.layer == "+".join((*(["turned"] if order else []), "scores", "chances", "context"))
    assert layer.variant.startswith("cuda:f32/fused.attention{")
    kernels = [text for text in ptx_of(module.read_bytes()) if "mma.sync" in text]
    assert len(kernels) == 1


def test_a_separable_convolution_is_one_kernel_of_the_plan(tmp_path: Path) -> None:
    builder = Builder()
    deep = builder.op("Relu", "deep.relu", builder.conv("deep", "x", (96, 96), group=96))
    last = builder.op("Add", "y", builder.conv("wide", deep, (96, 24), kernel=1), "r")
    shape = (1, 24, 56, 56)
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(builder.model([("x", (1, 96, 56, 56)), ("r", shape)], [(last, shape)]), model)
    config = CompileConfig(target=Target.create("cuda", "sm_80"), jobs=1, database=tmp_path / "tuning.db")
    (layer,) = compile_model(model, module, config).plan.layers
    assert layer.variant.startswith("cuda:f32/fused.separable_product{")
    (kernel,) = [text for text in ptx_of(module.read_bytes()) if "mma.sync" in text]
    assert min(instructions(kernel, "cp.async.cg", "st.shared", "bar.sync").values()) > 0
    if assembler() is not None:
        assert all(each.spilled == 0 for each in assemble(kernel, "sm_80"))


def test_a_network_is_planned_by_the_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if is_available("cuda"):
        pytest.skip("this machine has a GPU, so layers are measured")
    model, module = tmp_path / "net.onnx", tmp_path / "net.vmfb"
    onnx.save(network(), model)
    config = CompileConfig(target=Target.create("cuda", "sm_90"), jobs=1, database=tmp_path / "tuning.db")
    artifact = compile_model(model, module, config)
    assert artifact.plan.basis == "predicted by the cost model for sm_90, nothing was measured"
    assert artifact.plan.basis in caplog.text
    found = {layer.layer: layer.variant.partition("/")[2].partition("{")[0] for layer in artifact.plan.layers}
    assert found["wide"] == "conv2d.implicit"
    assert found["deep"] == "depthwise.thread_window"
    (text,) = ptx_of(module.read_bytes())
    assert ".target sm_90" in text
    if assembler() is not None:
        assert all(each.spilled == 0 for each in assemble(text, "sm_90"))
