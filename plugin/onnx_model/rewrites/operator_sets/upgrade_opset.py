"""Upgrades a model to opset 17, the oldest that the importer supports.

``onnx.version_converter`` is not used: it refuses several operators, ignores the bodies of control flow and copies all
weights. The source for the changes between opsets is the operator changelog
(https://onnx.ai/onnx/repo-docs/Changelog.html). Every change there between opset 1 and 17 that alters attributes or
inputs is either in ``upgrades.UPGRADES`` or compatible.
"""

from __future__ import annotations

from functools import partial

from onnx import ModelProto, NodeProto, helper

from sartor.onnx_model.graphs.graph import GraphEditor, opset, rewrite_nodes
from sartor.onnx_model.graphs.infer import infer_shapes
from sartor.onnx_model.rewrites.operator_sets.upgrades import UPGRADES

OLDEST_OPSET = 17


def upgrade_opset(model: ModelProto) -> tuple[str, ...]:
    """Upgrade operators whose definition changed and declare opset 17; newer models are not changed.

    Returns:
        The names of the changed nodes.

    Raises:
        UnsupportedModelError: an upgrade needs a shape or a constant that the model does not have.
    """
    version = opset(model)
    if version >= OLDEST_OPSET:
        return ()
    infer_shapes(model)
    changed = rewrite_nodes(model, partial(_upgraded, version=version))
    _declare(model)
    infer_shapes(model)
    return changed


def _upgraded(node: NodeProto, editor: GraphEditor, version: int) -> list[NodeProto] | None:
    upgrade = UPGRADES.get(node.op_type)
    return upgrade(node, editor, version) if upgrade else None


def _declare(model: ModelProto) -> None:
    others = [item for item in model.opset_import if item.domain not in ("", "ai.onnx")]
    kept = [helper.make_opsetid(item.domain, item.version) for item in others]
    del model.opset_import[:]
    model.opset_import.extend([helper.make_opsetid("", OLDEST_OPSET), *kept])
