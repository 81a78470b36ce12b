"""Single operators by ONNX Runtime's kernels, as steps of definitions that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import NodeProto, TypeProto, helper

from sartor.reference.trusted.oracles.element_types import numpy_code
from sartor.runtime.driver.signature import Array
from sartor.runtime.reference import OnnxRuntimeReference

_IR_VERSION = 10


def evaluate(operator: str, inputs: Sequence[Array], attributes: Mapping[str, Any], version: int = 17) -> list[Array]:
    """The outputs of a standard operator with one output.

    Raises:
        UnsupportedModelError: if ONNX Runtime has no kernel for it.
        UsageError: if it fails.
    """
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    return run_node(node, dict(zip(names, inputs, strict=True)), {"": version})


def run_node(node: NodeProto, feeds: Mapping[str, Array], versions: Mapping[str, int]) -> list[Array]:
    """The outputs of one node by ONNX Runtime's kernel, without optimisations; see ``evaluate``."""
    types = tuple((name, numpy_code(value.dtype)) for name, value in feeds.items())
    session = _session(node.SerializeToString(deterministic=True), types, tuple(sorted(versions.items())))
    return session({name: np.ascontiguousarray(value) for name, value in feeds.items()})


@lru_cache(maxsize=64)
def _session(
    node: bytes, types: tuple[tuple[str, int], ...], versions: tuple[tuple[str, int], ...]
) -> OnnxRuntimeReference:
    parsed = NodeProto.FromString(node)
    graph = helper.make_graph(
        [parsed],
        "one",
        [helper.make_tensor_value_info(name, kind, None) for name, kind in types],
        [helper.make_value_info(name, TypeProto()) for name in parsed.output if name],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
    return OnnxRuntimeReference(model.SerializeToString(), threads=1, optimises=False, cuts=False)
