"""Attention of any number of queries and keys where there are none of either: no step divides by zero, and without keys
the result is zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.sizes.dims import Symbol
from sartor.codegen.routines import FUSED_ROUTINES, routines_for
from sartor.costing.listing import list_candidates
from sartor.dialect_passes.fuse_layers import apply_fusions
from sartor.runtime.output_error import relative_error
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session
from sartor.tuning.networks.build_job import NetFiles, SplitNetwork, build_net
from sartor.tuning.records.signature import net_signature
from tests.dialect_passes.test_opening import TARGET, opened
from tests.open_models import named, saved
from tests.tiny_models import Builder

HEADS, DEPTH = 2, 8
QUERIES, KEYS = Symbol("queries", 0, 20), Symbol("keys", 0, 33)
ROUTINES = "open_attention", "blocked_attention"


@pytest.fixture(scope="module")
def attentions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, Path]:
    """A module of the same attention by each routine, and its model."""
    folder, build = tmp_path_factory.mktemp("attention"), Builder()
    for name in ROUTINES:
        scores = build.op("MatMul", f"{name}.scores", f"{name}.q", "k")
        build.op("MatMul", name, build.op("Softmax", f"{name}.share", scores, axis=-1), "v")
    dims: dict[str, list[int | str]] = {
        **{f"{name}.q": [1, HEADS, "queries", DEPTH] for name in ROUTINES},
        "k": [1, HEADS, DEPTH, "keys"],
        "v": [1, HEADS, "keys", DEPTH],
        **{name: [1, HEADS, "queries", DEPTH] for name in ROUTINES},
    }
    inputs = *(f"{name}.q" for name in ROUTINES), "k", "v"
    model = build.model([(name, [1] * 4) for name in inputs], [(name, [1] * 4) for name in ROUTINES])
    path = saved(named(model, dims), folder / "model.onnx")
    graph, imported = opened(path, [QUERIES, KEYS], lambda sizes: _shapes(sizes["queries"], sizes["keys"]))
    variants = list_candidates(graph, routines_for(frozenset()), TARGET, FUSED_ROUTINES).variants
    kernels = {}
    for routine, fusion in zip(ROUTINES, graph.fusions, strict=True):
        offered = variants[fusion.layer.task.key]
        kernels[fusion.layer.name] = next(each for each in offered if each.routine == routine)
    fused = apply_fusions(graph, [*kernels])
    chosen = {layer.name: variants[layer.task.key][0] for layer in fused.layers} | kernels
    module = folder / "model.vmfb"
    build_net(SplitNetwork(fused, chosen), imported.weights, TARGET, "", NetFiles(module, None))
    return Session(module, signature=net_signature((fused.inputs, fused.outputs)), threads=1), path


def _shapes(queries: int, keys: int) -> dict[str, tuple[int, ...]]:
    keyed: dict[str, tuple[int, ...]] = {"k": (1, HEADS, DEPTH, keys), "v": (1, HEADS, keys, DEPTH)}
    return {f"{name}.q": (1, HEADS, queries, DEPTH) for name in ROUTINES} | keyed


@pytest.mark.parametrize(("queries", "keys"), [(0, 7), (5, 0), (0, 0), (1, 1), (20, 33), (3, 17)])
def test_attention_without_queries_or_keys(queries: int, keys: int, attentions: tuple[Session, Path]) -> None:
    session, path = attentions
    random = np.random.default_rng([queries, keys])
    feeds = {name: random.standard_normal(shape).astype(np.float32) for name, shape in _shapes(queries, keys).items()}
    found = session.run(None, feeds)
    assert [each.shape for each in found] == [(1, HEADS, queries, DEPTH)] * len(ROUTINES)
    if keys:
        assert relative_error(found, OnnxRuntimeReference(path, threads=1)(feeds)) < 1e-5
    else:
        assert not np.any(found)
