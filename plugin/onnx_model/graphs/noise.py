"""The record in a model's metadata of which inputs stand for its random operators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from onnx import ModelProto

from sartor.runtime.driver.noise import Noise

_RECORD = "sartor.noise."


def noise_of(model: ModelProto) -> tuple[Noise, ...]:
    """The inputs of a model, or of a prepared one, that stand for random operators."""
    return tuple(
        Noise.read(json.loads(metadata_prop.value))
        for metadata_prop in model.metadata_props
        if metadata_prop.key.startswith(_RECORD)
    )


def record_noise(model: ModelProto, noise: Sequence[Noise]) -> None:
    """Write distributions to the model's metadata, in place of those that it has."""
    kept = [
        (metadata_prop.key, metadata_prop.value)
        for metadata_prop in model.metadata_props
        if not metadata_prop.key.startswith(_RECORD)
    ]
    del model.metadata_props[:]
    added = [(_RECORD + drawn.name, json.dumps(asdict(drawn), sort_keys=True)) for drawn in noise]
    for key, value in (*kept, *added):
        model.metadata_props.add(key=key, value=value)
