"""Writes the files; see the package."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Export(NamedTuple):
    """What is exported: a module or a function, its operands, and the operator sets."""

    computed: nn.Module | Callable[..., Any]
    operands: tuple[Tensor, ...]
    opsets: tuple[int, ...] = (18,)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *operands: Tensor) -> Any:
        return self._function(*operands)


def _assigned(x: Tensor) -> Tensor:
    x = x.clone()
    x[x > 0.5] = -1.0
    return x


def _counted(x: Tensor) -> Any:
    loop = torch._higher_order_ops.while_loop
    return loop(lambda step, _: step < 3, lambda step, value: (step + 1, value * 1.5), (torch.tensor(0), x))


def _scanned(x: Tensor) -> Any:
    return torch._higher_order_ops.scan(lambda state, row: (state * 0.5 + row, state * 2), torch.zeros(3), x, dim=0)


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)


def _spectrum(x: Tensor) -> Tensor:
    return torch.view_as_real(torch.stft(x, 16, 4, 16, torch.hann_window(16), center=True, return_complex=True))


def _exports() -> Mapping[str, Export]:
    draw, image = torch.randn, torch.randn(1, 2, 6, 8)
    causal = F.scaled_dot_product_attention
    queries, keys = draw(2, 4, 5, 8), draw(2, 2, 5, 8)
    rows = torch.tensor([[1, 2, 4], [5, 4, 3]])
    return {
        "assignment_by_mask": Export(_assigned, (draw(3, 5),)),
        "scatter_by_mask": Export(lambda x, m, y: x.masked_scatter(m > 0, y), (draw(3, 5), draw(3, 5), draw(15))),
        "embedding_bag": Export(nn.EmbeddingBag(10, 4, mode="max", padding_idx=2), (rows,)),
        "while_loop": Export(_counted, (draw(4, 5),), (18, 23)),
        "scan": Export(_scanned, (draw(5, 3),)),
        "branches": Export(lambda x: torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,)), (draw(4, 5),)),
        "grouped_attention": Export(
            lambda q, k, v: causal(q, k, v, is_causal=True, enable_gqa=True), (queries, keys, keys), (18, 23, 24)
        ),
        "resized_by_0.7": Export(lambda x: F.interpolate(x, scale_factor=0.7), (draw(1, 2, 20, 30),)),
        "resized_smoothly": Export(
            lambda x: F.interpolate(x, size=(7, 5), mode="bilinear", antialias=True), (draw(1, 3, 16, 13),), (18, 23)
        ),
        "cubic_grid": Export(
            lambda x, g: F.grid_sample(x, g, mode="bicubic", padding_mode="reflection", align_corners=False),
            (image, 1.5 * draw(1, 4, 4, 2)),
        ),
        "rms_norm": Export(nn.RMSNorm((6,)), (draw(2, 5, 6),), (18, 23, 24)),
        "group_norm": Export(nn.GroupNorm(2, 4), (draw(2, 4, 5, 6),), (18, 23)),
        "spectrum": Export(_spectrum, (draw(2, 64),)),
        "unpooled": Export(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (image,)),
        "quantile": Export(lambda x: torch.quantile(x, 0.3, dim=1), (draw(3, 7),)),
        "rotary": Export(_rotated, (draw(2, 5, 8), draw(5, 4)), (18, 23)),
        "largest": Export(lambda x: torch.topk(x, 3, dim=-1, largest=False), (draw(3, 7),), (18, 24)),
    }


def _without_traces(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without where in PyTorch's source each node comes from."""
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        del graph.metadata_props[:]
        for value in graph.value_info:
            del value.metadata_props[:]
        for node in graph.node:
            node.ClearField("doc_string")
            del node.metadata_props[:]
            graphs.extend(attribute.g for attribute in node.attribute if attribute.HasField("g"))
    del model.metadata_props[:]
    return model


def main() -> None:
    """Write all files into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name, (computed, operands, opsets) in _exports().items():
        module = (computed if isinstance(computed, nn.Module) else _Function(computed)).eval()
        for opset in opsets:
            program = torch.onnx.export(module, operands, None, dynamo=True, opset_version=opset, verbose=False)
            onnx.save_model(_without_traces(program.model_proto), folder / f"{name}_{opset}.onnx")


if __name__ == "__main__":
    main()
