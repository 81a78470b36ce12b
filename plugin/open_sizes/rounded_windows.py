"""Windows whose number is rounded up, for any size: the last one is one more, or not, as a size leaves a rest.

A model is imported with a few sizes. Where all of these leave the same rest, their code would be that of all others.
But windows are as many with ``ceil_mode`` as without it behind an input that is longer by the stride less one: of a
maximum or an average that counts no padding, these are padding. So a model that has such windows is written anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx import NodeProto, helper

from sartor.errors import SartorError
from sartor.onnx_model.graphs.graph import attributes
from sartor.onnx_model.graphs.held_data import holding, serialised
from sartor.onnx_model.graphs.walk import nodes
from sartor.onnx_model.reading.load import read_model
from sartor.tuning.workers.protocol import WorkerError

_PADDED = ("ceil_mode", "pads", "auto_pad", "count_include_pad")


@dataclass(frozen=True)
class RoundedFile:
    """A model whose windows are padded.

    Attributes:
        path: of its file; None if the given one has none that are rounded up.
        external: files of the given one's external data, which the other contains.
    """

    path: Path | None
    external: tuple[Path, ...] = ()


def rounded_file(path: Path, folder: Path) -> RoundedFile | WorkerError:
    """Worker side: write a model with padding in place of ``ceil_mode`` to a folder, if that is the same for windows
    that it has.

    Args:
        path: ONNX file.
        folder: for the file, which has the given one's name.
    """
    try:
        with holding():
            model, external = read_model(path)
            rounded = [(node, pads) for node in nodes(model) if (pads := _enlarged(node)) is not None]
            if not rounded:
                return RoundedFile(None)
            for node, pads in rounded:
                kept = [attribute for attribute in node.attribute if attribute.name not in _PADDED]
                del node.attribute[:]
                node.attribute.extend([*kept, helper.make_attribute("pads", pads)])
            folder.mkdir(exist_ok=True)
            with (folder / path.name).open("wb") as file:
                file.writelines(serialised(model))
            return RoundedFile(folder / path.name, external)
    except SartorError as error:
        return WorkerError(error)


def rounds_up(node: NodeProto) -> bool:
    """Whether a node has windows whose number depends on what a size leaves, and is rounded up."""
    settings = attributes(node)
    return bool(settings.get("ceil_mode")) and max(settings.get("strides", [1])) > 1


def _enlarged(node: NodeProto) -> list[int] | None:
    """The padding by which the windows of a node are as many as if they were rounded up; None if it is no such node."""
    settings = attributes(node)
    border = settings.get("auto_pad", "NOTSET")
    if node.op_type not in ("AveragePool", "MaxPool") or border not in ("NOTSET", "VALID") or not rounds_up(node):
        return None
    kernel = settings["kernel_shape"]
    rank = len(kernel)
    pads = settings.get("pads", [0] * 2 * rank) if border == "NOTSET" else [0] * 2 * rank
    strides = settings.get("strides", [1] * rank)
    ends = [end + stride - 1 for end, stride in zip(pads[rank:], strides, strict=True)]
    counts = node.op_type == "AveragePool" and bool(settings.get("count_include_pad"))
    # Others may have a last window that begins behind the input, and is none.
    if (counts and any(pads)) or any(end >= taps for end, taps in zip(ends, kernel, strict=True)):
        return None
    return [*pads[:rank], *ends]
