"""Operators of ai.onnx.ml that can be compiled, and reasons for refusing the others."""

from __future__ import annotations

from collections.abc import Mapping

from sartor.onnx_model.rewrites.number_types.quantized import Lowering
from sartor.onnx_model.rewrites.operator_sets.classical.features import FEATURES
from sartor.onnx_model.rewrites.operator_sets.classical.label_encoder import label_encoder
from sartor.onnx_model.rewrites.operator_sets.classical.linear import LINEAR
from sartor.onnx_model.rewrites.operator_sets.classical.support_vectors import SUPPORT_VECTORS
from sartor.onnx_model.rewrites.operator_sets.classical.trees.ensembles import TREES

CLASSICAL_DOMAIN = "ai.onnx.ml"


def classical(version: int) -> Mapping[str, Lowering]:
    """Lowerings of the operators of a version of ai.onnx.ml."""
    return {**FEATURES, **label_encoder(version), **LINEAR, **SUPPORT_VECTORS, **TREES}


CLASSICAL = frozenset(classical(1))
"""The names of these operators, which are the same in all versions."""

_MAPS = (
    "{} maps, which are no tensors; convert the model without them, by options={{'zipmap': False}} in skl2onnx or "
    "zipmap=False in onnxmltools, or cut it between its tensors by onnx.utils.extract_model"
)
CLASSICAL_REASONS: Mapping[str, str] = {
    "ZipMap": _MAPS.format("gives probabilities as"),
    "CastMap": _MAPS.format("reads"),
    "DictVectorizer": _MAPS.format("reads"),
    "CategoryMapper": "works on strings; compute its result outside, and make it an input of the model",
}
"""Operators that are refused, with ways out."""
