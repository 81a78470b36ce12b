"""A classifier of texts after the simplifiers onnxsim, onnxslim and onnx-ir, and onnxscript's fusions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir
import onnx_ir.passes.common
import onnxsim
import onnxslim
import torch
from onnxscript.rewriter.ort_fusions import optimize_for_ort
from transformers import BertForSequenceClassification

from tools.library_files.transformers_models import saved


def files(work: Path) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Names and models."""
    network = BertForSequenceClassification.from_pretrained(saved("bert", work), attn_implementation="eager").eval()
    ids = torch.arange(1, 7)[None]
    program = torch.onnx.export(
        network, (ids, torch.ones_like(ids)), None, dynamo=True, opset_version=18, verbose=False, optimize=False
    )
    exported = program.model_proto
    simplified, is_right = onnxsim.simplify(exported)
    if not is_right:
        raise RuntimeError("onnxsim's model computes something else")
    yield "onnxsim_bert", simplified
    yield "onnxslim_bert", onnxslim.slim(exported)
    passes = onnx_ir.passes.common
    steps = (
        passes.CommonSubexpressionEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        passes.LiftConstantsToInitializersPass(),
    )
    model = onnx_ir.from_proto(exported)
    for step in steps:
        step(model)
    yield "onnx_ir_bert", onnx_ir.to_proto(model)
    program.optimize()
    fused, _ = optimize_for_ort(onnx_ir.from_proto(program.model_proto))
    yield "onnxscript_bert", onnx_ir.to_proto(fused)
