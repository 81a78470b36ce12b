"""A decoder with seeded weights in blocks of 4 bits, as a model in ONNX and as a file of llama.cpp with equal numbers.

Layers are those of Llama: normalised by the root of the mean square, attention of grouped queries with rotated
positions, and a gated product. Q4_0 of llama.cpp and ``MatMulNBits`` without zero points mean the same: blocks of 32
codes around 8 with one scale.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sartor.runtime.driver.signature import Array

_BLOCK, _EPSILON, _BASE = 32, 1e-6, 1e4
_F32, _Q4_0 = 0, 2
_UINT, _FLOAT, _STRING = 4, 6, 8
_ALIGNMENT = 32
_DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class Decoder:
    """The sizes of a decoder, and its weights.

    Attributes:
        layers, width, inner, words: its sizes.
        heads, groups: heads of queries, and of keys and values.
        head: numbers of a head.
    """

    layers: int = 6
    width: int = 768
    inner: int = 2048
    words: int = 8192
    heads: int = 12
    groups: int = 4
    head: int = 64

    def products(self) -> Iterator[tuple[str, int, int]]:
        """Names, depths and columns of all products, by the names of llama.cpp."""
        of_groups = self.groups * self.head
        for layer in range(self.layers):
            sizes = {
                "attn_q": (self.width, self.heads * self.head),
                "attn_k": (self.width, of_groups),
                "attn_v": (self.width, of_groups),
                "attn_output": (self.heads * self.head, self.width),
                "ffn_gate": (self.width, self.inner),
                "ffn_up": (self.width, self.inner),
                "ffn_down": (self.inner, self.width),
            }
            for name, (depth, columns) in sizes.items():
                yield f"blk.{layer}.{name}", depth, columns
        yield "output", self.width, self.words

    def bytes_read(self, past: int) -> int:
        """Bytes that a token reads behind ``past`` others: codes, scales of 4 bytes, and caches."""
        elements = sum(depth * columns for _, depth, columns in self.products())
        return elements // 2 + elements // _BLOCK * 4 + 2 * self.layers * self.groups * self.head * past * 4

    def weights(self) -> dict[str, tuple[Array, Array]]:
        """Codes ``[columns, blocks, 32]`` and scales ``[columns, blocks]`` in f16 of all products."""
        random, found = np.random.default_rng(0), {}
        for name, depth, columns in self.products():
            codes = random.integers(0, 16, (columns, depth // _BLOCK, _BLOCK), dtype=np.uint8)
            scales = (random.random((columns, depth // _BLOCK)) + 0.5) / (4.6 * depth**0.5)
            found[name] = codes, scales.astype(np.float16)
        return found

    def table(self) -> Array:
        """The numbers of each word, ``[words, width]``."""
        return np.random.default_rng(1).standard_normal((self.words, self.width)).astype(np.float32)


@dataclass
class _Writer:
    """Collects nodes and constants of a model that reads ``tokens`` behind ``past`` ones."""

    of: Decoder
    tokens: int
    past: int
    level: int
    nodes: list[NodeProto] = field(default_factory=list)
    held: list[TensorProto] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)

    def __call__(self, operator: str, *inputs: str, output: str = "", domain: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def hold(self, values: Any, dtype: Any = np.int64) -> str:
        """The name of a constant."""
        self.held.append(numpy_helper.from_array(np.asarray(values, dtype), f"held_{len(self.held)}"))
        return str(self.held[-1].name)

    def write(self) -> ModelProto:
        """The model; its result is the logits of the last token."""
        of, weights = self.of, self.of.weights()
        self.inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, self.tokens])]
        rows = self("Gather", self.hold(of.table(), np.float32), "input_ids")
        for layer in range(of.layers):
            named = {
                name.rpartition(".")[2]: part for name, part in weights.items() if name.startswith(f"blk.{layer}.")
            }
            rows = self("Add", rows, self.attention(layer, self.normalised(rows), named))
            normal = self.normalised(rows)
            gate = self.product(normal, named["ffn_gate"])
            gated = self("Mul", self("Mul", gate, self("Sigmoid", gate)), self.product(normal, named["ffn_up"]))
            rows = self("Add", rows, self.product(gated, named["ffn_down"]))
        last = self("Gather", rows, self.hold([self.tokens - 1]), axis=1)
        self.product(self.normalised(last), weights["output"], "logits")
        result = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, of.words])
        graph = helper.make_graph(self.nodes, "decoder", self.inputs, [result], self.held)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid(_DOMAIN, 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9)

    def normalised(self, rows: str) -> str:
        """Rows divided by the root of the mean of their squares."""
        mean = self("ReduceMean", self("Mul", rows, rows), axes=[-1], keepdims=1)
        root = self("Sqrt", self("Add", mean, self.hold(_EPSILON, np.float32)))
        return self("Div", rows, root)

    def product(self, rows: str, weight: tuple[Array, Array], output: str = "") -> str:
        codes, scales = weight
        columns, blocks, _ = codes.shape
        parts = [
            self.hold(codes[..., ::2] | codes[..., 1::2] << 4, np.uint8),
            self.hold(scales.reshape(-1), np.float32),
        ]
        sizes: dict[str, Any] = {"K": blocks * _BLOCK, "N": columns, "bits": 4, "block_size": _BLOCK}
        sizes["accuracy_level"] = self.level
        return self("MatMulNBits", rows, *parts, output=output, domain=_DOMAIN, **sizes)

    def attention(self, layer: int, rows: str, named: dict[str, tuple[Array, Array]]) -> str:
        of, total = self.of, self.past + self.tokens
        query = self.turned(self.heads_of(self.product(rows, named["attn_q"]), of.heads))
        key = self.turned(self.heads_of(self.product(rows, named["attn_k"]), of.groups))
        value = self.heads_of(self.product(rows, named["attn_v"]), of.groups)
        if self.past:
            key, value = (self.behind_past(part, f"past.{layer}.{name}") for part, name in ((key, "k"), (value, "v")))
        shape = [1, of.groups, of.heads // of.groups, total, of.head]
        key, value = (
            self("Reshape", self("Expand", self("Unsqueeze", part, self.hold([2])), self.hold(shape)),
                 self.hold([1, of.heads, total, of.head]))
            for part in (key, value)
        )  # fmt: skip
        scores = self("MatMul", query, self("Transpose", key, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, self.hold(of.head**-0.5, np.float32))
        if self.tokens > 1:
            above = np.triu(np.full((self.tokens, total), -1e9), self.past + 1)
            scores = self("Add", scores, self.hold(above, np.float32))
        mixed = self("Transpose", self("MatMul", self("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        joined = self("Reshape", mixed, self.hold([1, self.tokens, of.heads * of.head]))
        return self.product(joined, named["attn_output"])

    def heads_of(self, rows: str, heads: int) -> str:
        split = self("Reshape", rows, self.hold([1, self.tokens, heads, self.of.head]))
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def behind_past(self, part: str, name: str) -> str:
        shape = [1, self.of.groups, self.past, self.of.head]
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return self("Concat", name, part, axis=2)

    def turned(self, heads: str) -> str:
        """Heads turned by their positions, the first half of their numbers against the second."""
        half = self.of.head // 2
        places = np.arange(self.past, self.past + self.tokens)[:, None] * _BASE ** (-np.arange(half) / half)
        angles = np.concatenate([places, places], -1)
        first, second = (
            self("Slice", heads, self.hold([start]), self.hold([start + half]), self.hold([3])) for start in (0, half)
        )
        across = self("Concat", self("Neg", second), first, axis=-1)
        straight = self("Mul", heads, self.hold(np.cos(angles), np.float32))
        return self("Add", straight, self("Mul", across, self.hold(np.sin(angles), np.float32)))


def write_onnx(of: Decoder, path: Path, tokens: int, past: int, level: int) -> None:
    """Write a model that reads so many tokens behind so many others; ``level`` is its products' ``accuracy_level``."""
    onnx.save(_Writer(of, tokens, past, level).write(), path)


def write_gguf(of: Decoder, path: Path, context: int) -> None:
    """Write the file of llama.cpp, for at most ``context`` tokens (GGUF, version 3)."""
    counts = {
        "context_length": context,
        "embedding_length": of.width,
        "block_count": of.layers,
        "feed_forward_length": of.inner,
        "attention.head_count": of.heads,
        "attention.head_count_kv": of.groups,
        "rope.dimension_count": of.head,
        "vocab_size": of.words,
    }
    reals = {"attention.layer_norm_rms_epsilon": _EPSILON, "rope.freq_base": _BASE}
    values = [("general.architecture", _STRING, _text("llama")), ("tokenizer.ggml.model", _STRING, _text("no_vocab"))]
    values += [(f"llama.{name}", _UINT, struct.pack("<I", value)) for name, value in counts.items()]
    values += [(f"llama.{name}", _FLOAT, struct.pack("<f", value)) for name, value in reals.items()]
    tensors = list(_tensors(of))
    header, offset = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))], 0
    header += [_text(name) + struct.pack("<I", kind) + content for name, kind, content in values]
    for name, shape, kind, data in tensors:
        header.append(_text(f"{name}.weight") + struct.pack("<I", len(shape)))
        header.append(struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset))
        offset += _filled(len(data))
    begin = b"".join(header)
    with path.open("wb") as file:
        file.write(begin.ljust(_filled(len(begin)), b"\0"))
        for *_, data in tensors:
            file.write(data.ljust(_filled(len(data)), b"\0"))


def _tensors(of: Decoder) -> Iterator[tuple[str, Sequence[int], int, bytes]]:
    """Names, shapes with the fastest dimension first, types and contents."""
    ones = np.ones(of.width, np.float32).tobytes()
    yield "token_embd", (of.width, of.words), _F32, of.table().tobytes()
    yield "output_norm", (of.width,), _F32, ones
    for layer in range(of.layers):
        yield f"blk.{layer}.attn_norm", (of.width,), _F32, ones
        yield f"blk.{layer}.ffn_norm", (of.width,), _F32, ones
    for name, (codes, scales) in of.weights().items():
        if name.endswith(("attn_q", "attn_k")):
            # llama.cpp turns each number against its neighbour.
            order = np.arange(len(codes)).reshape(-1, 2, of.head // 2).transpose(0, 2, 1).reshape(-1)
            codes, scales = codes[order], scales[order]
        half = _BLOCK // 2
        joined = (codes[..., :half] | codes[..., half:] << 4).astype(np.uint8)
        blocks = np.concatenate([scales[..., None].view(np.uint8), joined], -1)
        yield name, (codes.shape[1] * _BLOCK, len(codes)), _Q4_0, blocks.tobytes()


def _text(content: str) -> bytes:
    return struct.pack("<Q", len(content)) + content.encode()


def _filled(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
