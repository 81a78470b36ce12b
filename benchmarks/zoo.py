"""The networks that Sartor is measured on, built with seeded weights of realistic scale, nothing downloaded.

`python -m benchmarks.zoo` lists them, `python -m benchmarks.zoo resnet50 bert -o DIR` writes them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from benchmarks.networks import (
    alexnet,
    any_size,
    audio,
    densenet,
    efficientnet,
    googlenet,
    inception,
    landmarks,
    lenet,
    mobilenet,
    outliers,
    resnet,
    shufflenet,
    squeezenet,
    ssd,
    streams,
    transformer,
    vgg,
    vits,
    whisper,
)
from benchmarks.networks.graph import Body, assemble, header
from sartor.errors import SartorError, UsageError

# Increase it when any network changes: files written under another version are built anew.
ZOO_VERSION = 1

_BODIES: dict[str, Body] = {
    "lenet5": lenet.lenet5,
    "alexnet": alexnet.alexnet,
    "vgg16": vgg.vgg16,
    "vgg19": vgg.vgg19,
    "resnet18": resnet.resnet18,
    "resnet50": resnet.resnet50,
    "resnet101": resnet.resnet101,
    "resnet_xy": resnet.resnet_xy,
    "googlenet": googlenet.googlenet,
    "inception_v3": inception.inception_v3,
    "squeezenet": squeezenet.squeezenet,
    "mobilenet_v1": mobilenet.mobilenet_v1,
    "mobilenet_v2": mobilenet.mobilenet_v2,
    "mobilenet_v3": mobilenet.mobilenet_v3,
    "shufflenet_v2": shufflenet.shufflenet_v2,
    "efficientnet_b0": efficientnet.efficientnet_b0,
    "densenet121": densenet.densenet121,
    "ssd_resnet50": ssd.ssd_resnet50,
    "bert": transformer.bert,
    "vit_tiny": transformer.vit_tiny,
    "outlier_encoder": outliers.outlier_encoder,
    "spectrogram": audio.spectrogram,
    "vad_lstm": audio.vad_lstm,
    "gru_enhancer": audio.gru_enhancer,
    "crnn": audio.crnn,
    "face_mesh": landmarks.face_mesh,
    "segmentation_decoder": landmarks.segmentation_decoder,
}

# Each takes `batch`, `seed` and `weights` (False: parameters become graph inputs, so the model is small).
NETWORKS: dict[str, Callable[..., onnx.ModelProto]] = {
    name: partial(assemble, name, body, version=str(ZOO_VERSION)) for name, body in _BODIES.items()
}

# Of speech, as exporters write them: of one sequence, with states, and sizes that callers choose. Each takes `seed`.
SPEECH: dict[str, Callable[[int], onnx.ModelProto]] = {
    "enhancer_stream": streams.enhancer_stream,
    "vad_stream": streams.vad_stream,
    "vits": vits.vits,
    "vits_text": vits.vits_text,
    "vits_voice": vits.vits_voice,
    "whisper_decoder": whisper.whisper_decoder,
    "whisper_encoder": whisper.whisper_encoder,
}

# Of sizes that callers choose, as exporters write them. Each takes `seed`.
ANY_SIZE: dict[str, Callable[[int], onnx.ModelProto]] = {
    "frame_encoder": any_size.frame_encoder,
    "grid_detector": any_size.grid_detector,
    "line_recogniser": any_size.line_recogniser,
    "masked_encoder": any_size.masked_encoder,
}
_EXPORTED = SPEECH | ANY_SIZE


def build(name: str, batch: int = 1, seed: int = 0) -> onnx.ModelProto:
    """Return the network `name`, with static shapes unless it is one of `SPEECH` or `ANY_SIZE`.

    Equal arguments give equal bytes.

    Raises UsageError for a name that is in no table, and for a batch of a network of `SPEECH` or `ANY_SIZE`.
    """
    _check_name(name)
    if name in NETWORKS:
        return NETWORKS[name](batch=batch, seed=seed)
    if batch != 1:
        raise UsageError(f"'{name}' is of one sequence or of any size, so it has no batch of {batch}")
    model = _EXPORTED[name](seed)
    model.producer_version = str(ZOO_VERSION)
    return model


def write(name: str, directory: Path | str) -> Path:
    """Return the path of `directory/name.onnx`, written unless this version of the zoo already did.

    The file appears whole or not at all. Raises UsageError for an unknown name or a directory that cannot be
    written.
    """
    _check_name(name)
    path = Path(directory) / f"{name}.onnx"
    if _is_current(path):
        return path
    model = build(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, model.SerializeToString(deterministic=True))
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose a directory that can be written") from error
    return path


def sample_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return seeded inputs: floats from N(0, 1), indices within the tables they index, other integers as masks.

    A mask is 1 on a prefix of its last axis, at least half of it, and 0 behind, as padding sentences gives.
    Raises UsageError for a dimension that is not static.
    """
    rng = np.random.default_rng(seed)
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    return {
        value.name: _sample(value, _index_bound(model.graph, value.name, stored), rng)
        for value in model.graph.input
        if value.name not in stored
    }


def _check_name(name: str) -> None:
    if name not in NETWORKS | _EXPORTED:
        raise UsageError(f"there is no network '{name}'; choose from {', '.join(NETWORKS | _EXPORTED)}")


def _sample(value: onnx.ValueInfoProto, bound: int | None, rng: np.random.Generator) -> NDArray[Any]:
    tensor = value.type.tensor_type
    if not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        raise UsageError(f"input '{value.name}' has a dimension that is not static; bind it before sampling")
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if bound is not None:
        return rng.integers(0, bound, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        length = shape[-1] if shape else 1
        kept = rng.integers(length // 2, length, shape[:-1], endpoint=True)
        return np.broadcast_to(np.arange(length) < kept[..., np.newaxis], shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _index_bound(graph: onnx.GraphProto, name: str, stored: dict[str, TensorProto]) -> int | None:
    """Return how many rows the table has that the input `name` indexes, or None when it indexes none."""
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in stored:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            return int(stored[node.input[0]].dims[axis])
    return None


def _is_current(path: Path) -> bool:
    """Tell whether a file is of this version, from its first bytes: the header's fields precede the graph."""
    expected: bytes = header(str(ZOO_VERSION)).SerializeToString(deterministic=True)
    try:
        with path.open("rb") as file:
            return file.read(len(expected)) == expected
    except OSError:
        return False


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """List the networks, or write the named ones (all, if none is named) to the directory after `-o`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo", description="List or write benchmark networks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks to write (default: all)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="write NAME.onnx there; without it, list")
    options = parser.parse_args(arguments)
    if options.output is None:
        print("\n".join(options.names or NETWORKS | _EXPORTED))
        return 0
    try:
        for name in options.names or NETWORKS | _EXPORTED:
            print(write(name, options.output))
    except SartorError as error:
        print(f"zoo: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
