"""Worker side: a model as a callable whose results are trusted: ONNX Runtime's, or the operators' definitions."""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto

from sartor.errors import UnsupportedModelError, UsageError
from sartor.onnx_model.graphs.mapped_data import (
    ROOT,
    check_unchanged,
    is_large,
    mapped_array,
    mapped_bytes,
    mapped_model,
)
from sartor.onnx_model.graphs.tensor_data import element_bits
from sartor.onnx_model.graphs.walk import nodes, tensors
from sartor.onnx_model.reading.external_data import is_external
from sartor.onnx_model.reading.noise_inputs import RANDOM_OPERATORS, feed_noise
from sartor.onnx_model.reading.outside_weights import outside_weights
from sartor.reference.trusted.exact.exact_copy import exact_copy
from sartor.reference.trusted.loaded_models import LOADED
from sartor.reference.trusted.oracles.call import Call
from sartor.reference.trusted.oracles.table import DEVIATIONS, definition_of
from sartor.reference.trusted.parts.division import UncoveredError
from sartor.reference.trusted.parts.parted_model import PartedModel, has_deviations, named
from sartor.runtime.driver.signature import Array
from sartor.runtime.mapping.heap import trim_heap
from sartor.runtime.reference import OnnxRuntimeReference

# The tag of a node's operator in a serialised model: a text in field 4.
_OPERATOR_FIELD = 4 << 3 | 2
# What names the file of weights that lie beside a serialised model.
_EXTERNAL = b"location"
# ONNX Runtime 1.32 finds the range of the states of a batch apart for the sequences of each of its threads.
_RANGED_BY_THREADS = ("DynamicQuantizeLSTM",)
# How messages of ONNX Runtime name a node that fails while it runs (``reason_of``).
_FAILED_NODE = re.compile(r"node '(?P<name>.*?)' \((?P<operator>\w+)\)")


class ReferenceModel:
    """Computes what a model means. All checks of results use it; peers that are timed are run as their makers set them.

    ONNX Runtime runs it. What that has no kernel for, or is not trusted with, is computed by its definition
    (``oracles/table.py``), and the rest in parts around it. Products of 8-bit integers are exact on every CPU
    (``exact_copy``).

    Attributes:
        input_names: of the model, with those that take the place of random operators.
        output_names: without outputs that only count the elements of others, if these are cut.
        cut_names: of the outputs that are cut to a count.
    """

    def __init__(
        self,
        model: Path | bytes,
        *,
        threads: int | None = None,
        optimises: bool = True,
        layouts: bool = True,
        cuts: bool = True,
    ) -> None:
        """Load a model.

        Args:
            model: path or content of an ONNX file.
            threads, optimises, layouts, cuts: as for ``OnnxRuntimeReference``. An operator whose results depend on the
                number of threads takes one.

        Raises:
            UsageError: if ``threads`` is below 1, or the file of a large model was changed since it was parsed.
            SartorError: if weights in another file cannot be read.
            UncoveredError: if nobody is trusted with a node.
            UnsupportedModelError: if the model cannot be loaded.
        """
        light, self.mapped_bytes = _without_weights(model)
        fed = _fed(light)
        self._model = exact_copy(fed) or fed
        if (threads is None or threads > 1) and _may_have(self._model, _RANGED_BY_THREADS):
            threads = 1
        folder = light.parent if isinstance(light, Path) else ROOT
        self._whole = partial(
            OnnxRuntimeReference,
            folder=folder,
            threads=threads,
            optimises=optimises,
            layouts=layouts,
            cuts=cuts,
        )
        self._parts = partial(
            PartedModel, folder=folder, threads=threads, optimises=optimises, layouts=layouts, cuts=cuts
        )
        self._kept: OnnxRuntimeReference | PartedModel | None = None
        runtime = self._runtime
        self.input_names = runtime.input_names
        self.output_names = runtime.output_names
        self.cut_names = runtime.cut_names

    @property
    def _runtime(self) -> OnnxRuntimeReference | PartedModel:
        """What runs the model, which is loaded if it is not."""
        LOADED.begin(self)
        if self._kept is None:
            self._kept = self._loaded()
        return self._kept

    def unload(self) -> None:
        """Free what runs the model, until it is needed again."""
        self._kept = None
        trim_heap()

    @property
    def own(self) -> tuple[NodeProto, ...]:
        """The nodes that something else than ONNX Runtime's kernels computes."""
        return tuple(runtime.own) if isinstance(runtime := self._runtime, PartedModel) else ()

    @property
    def described(self) -> str:
        """Who computes it, as messages say it: "ONNX Runtime and the definition of NhwcConv"."""
        runs_runtime = runtime.runs_runtime if isinstance(runtime := self._runtime, PartedModel) else True
        return described(self.own, runs_runtime=runs_runtime)

    def _loaded(self) -> OnnxRuntimeReference | PartedModel:
        if isinstance(self._model, bytes):
            check_unchanged(self._model)
        read = _read(self._model) if _may_deviate(self._model) else None
        if read is not None and has_deviations(read):
            return self._parts(read)
        try:
            return self._whole(self._model)
        except UnsupportedModelError as error:
            read = read or _read(self._model)
            if read is None:
                raise
            whole = named(read)
            try:
                parts = self._parts(whole)
                # It also refuses models of which two nodes have one name.
                return parts if parts.own else self._whole(whole.SerializeToString())
            except UncoveredError:
                raise
            except UnsupportedModelError:
                raise error from None

    def __call__(self, feeds: Mapping[str, Array], seconds: float = math.inf) -> list[Array]:
        """Run the model; returns all outputs in the model's order.

        Args:
            feeds: an array for each input.
            seconds: after which the run is given up, once the operator that is busy has ended.

        Raises:
            UsageError: if the feeds do not fit the model, or running it fails.
            ReferenceFailedError: if it did not end in time.
        """
        try:
            return self._runtime(feeds, seconds)
        except UsageError as error:
            replaced = self._without_failing(error)
            if replaced is None:
                raise
            outputs = replaced(feeds, seconds)
        self._kept = replaced
        return outputs

    def calls(self, feeds: Mapping[str, Array]) -> list[tuple[Call, list[Array]]]:
        """What each node of ``own`` reads and computes on some inputs.

        Raises:
            UsageError: as when it is called.
        """
        self(feeds)
        return runtime.calls(feeds) if isinstance(runtime := self._runtime, PartedModel) else []

    def _without_failing(self, error: UsageError) -> PartedModel | None:
        """The model with a node by its definition that ONNX Runtime loads and fails to run; None if it has none."""
        failed, read = _FAILED_NODE.search(str(error)), _read(self._model)
        if isinstance(self._runtime, PartedModel) or failed is None or read is None:
            return None
        failing = [node for node in nodes(read) if (node.name, node.op_type) == failed.groups()]
        if not any(definition_of(node) for node in failing):
            return None
        whole = named(read)
        return self._parts(whole, refused=frozenset(node.name for node in failing))


def described(own: Iterable[NodeProto], *, runs_runtime: bool) -> str:
    """Who computes a model of which something else than ONNX Runtime computes some nodes."""
    operators = sorted({node.op_type for node in own})
    definitions = f"the definition{'s' if len(operators) > 1 else ''} of {', '.join(operators)}" if operators else ""
    return " and ".join(part for part in ("ONNX Runtime" if runs_runtime else "", definitions) if part)


def _without_weights(model: Path | bytes) -> tuple[Path | bytes, int]:
    """The content of a large file with the places of its weights, or any other model as it is; and the bytes of its
    weights in files. Where some of these lie beside the model it stays as it is too: they are not copied either."""
    if isinstance(model, bytes):
        return model, mapped_bytes(model)
    try:
        if not (is_large(model) or _EXTERNAL in model.read_bytes()):
            return model, 0
        parsed = mapped_model(model)
    except (DecodeError, OSError):
        # ONNX Runtime says so.
        return model, 0
    stored = [tensor for tensor, _ in tensors(parsed) if is_external(tensor)]
    is_beside = any(mapped_array(tensor) is None for tensor in stored)
    size = sum(math.prod(tensor.dims) * element_bits(tensor.data_type) // 8 for tensor in stored)
    return (model if is_beside else parsed.SerializeToString()), size


def _fed(model: Path | bytes) -> Path | bytes:
    """The model, with inputs in place of random operators if it has some."""
    read = _read(model) if _may_have(model, RANDOM_OPERATORS) else None
    return read.SerializeToString() if read is not None and feed_noise(read) else model


def _may_deviate(model: Path | bytes) -> bool:
    """Whether a model may have operators that ONNX Runtime is not trusted with."""
    return _may_have(model, [name for _, name in DEVIATIONS])


def _may_have(model: Path | bytes, operators: Iterable[str]) -> bool:
    """Whether a model may have some of these operators: a search, as parsing takes memory, and not among weights, of
    which there may be gigabytes."""
    named = [bytes((_OPERATOR_FIELD, len(name))) + name.encode() for name in operators]
    try:
        if isinstance(model, bytes):
            searched = outside_weights(model)
        else:
            with model.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                searched = outside_weights(content)
        return any(name in searched for name in named)
    except (OSError, ValueError):
        # No file, or an empty one, of which ONNX Runtime says so.
        return False


def _read(model: Path | bytes) -> ModelProto | None:
    """The model without weights that lie in other files; None if it is no model, which ONNX Runtime then says."""
    try:
        return ModelProto.FromString(model if isinstance(model, bytes) else model.read_bytes())
    except (DecodeError, OSError):
        return None
