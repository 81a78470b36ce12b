"""Small models compiled as one: IREE takes as long to set its passes up for a small model as for a large one."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import ModelProto, compose

import sartor.backend
from tests.plugin.onnx_model.builders import Array

Cases = Mapping[str, tuple[ModelProto, Mapping[str, Array]]]
"""Models and their inputs, by the names of their cases."""


def joined(models: Mapping[str, ModelProto]) -> ModelProto:
    """Models of the same operator sets side by side in one; all names of the n-th begin with ``cN_``."""
    whole = ModelProto()
    for number, built in enumerate(models.values()):
        part = compose.add_prefix(built, f"c{number}_")
        if not number:
            whole.CopyFrom(part)
            continue
        for field in ("node", "initializer", "input", "output", "value_info"):
            getattr(whole.graph, field).extend(getattr(part.graph, field))
    return whole


def computed_together(cases: Cases) -> dict[str, list[Array]]:
    """What the backend computes of each case, all of the same operator sets being compiled at once."""
    groups: dict[str, dict[str, tuple[ModelProto, Mapping[str, Array]]]] = {}
    for name, (built, feeds) in cases.items():
        groups.setdefault(str(built.opset_import), {})[name] = built, feeds
    return {name: results for group in groups.values() for name, results in _computed(group).items()}


def _computed(cases: Cases) -> dict[str, list[Array]]:
    whole = sartor.backend.prepare(joined({name: built for name, (built, _) in cases.items()}))
    arrays = [given[value.name] for built, given in cases.values() for value in built.graph.input]
    results = iter(whole.run(arrays))
    return {name: [next(results) for _ in built.graph.output] for name, (built, _) in cases.items()}
