"""A small model for each rewrite that exists because of IREE, which is refused or computed wrongly without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx.parser
from onnx import ModelProto, helper


@dataclass(frozen=True)
class Reproducer:
    """A model, and values by which its results are seen to be wrong.

    Attributes:
        graph: inputs, outputs and nodes in ONNX's text format.
        version: of the standard operators.
        values: of inputs for which random numbers would not do, one after another.
    """

    graph: str
    version: int
    values: Mapping[str, Sequence[float]]

    def model(self) -> ModelProto:
        """The model."""
        header = f'<ir_version: 9, opset_import: ["" : {self.version}]>'
        return onnx.parser.parse_model(f"{header}\nreproducer {self.graph}")

    def feeds(self) -> dict[str, np.ndarray]:
        """Inputs: those that are given, and random ones, the same each time."""
        rng = np.random.default_rng(0)
        feeds = {}
        for value in self.model().graph.input:
            tensor = value.type.tensor_type
            shape = [size.dim_value for size in tensor.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 100, shape)
            given = self.values.get(value.name)
            feeds[value.name] = (drawn if given is None else np.resize(given, shape)).astype(dtype)
        return feeds


def read_reproducers(text: str) -> dict[str, Reproducer]:
    """The reproducers of a text, by the name of the rewrite; paragraphs that begin with # are comments."""
    paragraphs = (paragraph.split("\n") for paragraph in text.strip().split("\n\n") if paragraph[0] != "#")
    return {first.split()[0]: _read(int(first.split()[1]), lines) for first, *lines in paragraphs}


def _read(version: int, lines: Sequence[str]) -> Reproducer:
    graph = [line for line in lines if line[0] in "(={<"]
    given = (line.split(": ") for line in lines if line not in graph)
    return Reproducer("\n".join(graph), version, {name: [*map(float, numbers.split())] for name, numbers in given})


REPRODUCERS = read_reproducers(Path(__file__).with_name("reproducers.txt").read_text(encoding="utf-8"))
