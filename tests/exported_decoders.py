"""Small decoders in the operators with which Optimum exports GPT-2 and Whisper: positions are counted from the length
of the first cache, and what hides later keys is a part of a table that sizes of keys and queries tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, checker, helper, numpy_helper

LAYERS, HEADS, WIDTH, WORDS, POSITIONS = 2, 2, 8, 11, 40
"""Layers, heads, elements of a head, tokens, and rows of the table of positions."""
_DEPTH = HEADS * WIDTH
_LEAST = float(np.finfo(np.float32).min)
Shapes = Mapping[str, Sequence[int | str]]


def gpt2() -> ModelProto:
    """GPT-2, whose tokens take masks and caches, and whose causal mask is sliced from a table."""
    write = _Writer(1)
    sizes = write.size("input_ids", 1), write.size("past_key_values.0.key", 2)
    total = write("Add", sizes[1], sizes[0])
    places = write("Range", sizes[1], total, write.number(1))
    places = write("Reshape", write("Unsqueeze", places, write.ints(0)), write.shape(-1, sizes[0]))
    tokens = write("Reshape", "input_ids", write.shape(-1, sizes[0]))
    words, rows = write.weight(WORDS, _DEPTH), write.weight(POSITIONS, _DEPTH)
    x = write("Add", write("Gather", words, tokens), write("Gather", rows, places))
    shown = write("Cast", write("Unsqueeze", write("Unsqueeze", "attention_mask", write.ints(1)), write.ints(2)), to=1)
    hidden = write("Mul", write("Sub", write.number(1.0), shown), write.number(_LEAST))
    for layer in range(LAYERS):
        x = write("Add", x, _causal(write, write.normalised(x), layer, hidden))
        x = write("Add", x, write.forward(write.normalised(x)))
    write("MatMul", write.normalised(x), write.weight(_DEPTH, WORDS), output="logits")
    past, present = (
        write.caches(name, length, ("key", "value"))
        for name, length in (("past_key_values", "past_sequence_length"), ("present", "past_sequence_length + 1"))
    )
    mask = ("batch_size", "past_sequence_length + 1")
    ids = {"input_ids": ("batch_size", "sequence_length"), "attention_mask": mask}
    return write.model(ids, past, {"logits": ("batch_size", "sequence_length", WORDS), **present})


def _causal(write: _Writer, x: str, layer: int, hidden: str) -> str:
    batch, length = (write.size(x, axis) for axis in (0, 1))
    flat = write("Reshape", x, write.ints(-1, _DEPTH))
    packed = write("Gemm", flat, write.weight(_DEPTH, 3 * _DEPTH), write.weight(3 * _DEPTH))
    packed = write("Reshape", packed, write.shape(batch, length, 3 * _DEPTH))
    query, key, value = (write.heads(each) for each in write.many("Split", packed, write.ints(*[_DEPTH] * 3), axis=2))
    keys, values = (
        write("Concat", f"past_key_values.{layer}.{kind}", each, output=f"present.{layer}.{kind}", axis=-2)
        for kind, each in (("key", key), ("value", value))
    )
    scores = write("MatMul", query, write("Transpose", keys, perm=[0, 1, 3, 2]))
    root = write("Pow", write("Cast", write.size(values, -1), to=1), write.number(0.5))
    scores = write("Div", scores, root)
    queries, whole = write.size(query, -2), write.size(keys, -2)
    table = write.held(np.tril(np.ones((1, 1, POSITIONS, POSITIONS), np.uint8)))
    bounds = (write.shape(write("Sub", whole, queries)), write.shape(whole))
    seen = write("Slice", table, *bounds, write.ints(2), write.ints(1))
    seen = write("Slice", seen, write.ints(0), bounds[1], write.ints(3), write.ints(1))
    scores = write("Where", write("Cast", seen, to=TensorProto.BOOL), scores, write.number(_LEAST))
    shares = write("Softmax", write("Add", scores, hidden), axis=-1)
    context = write("Transpose", write("MatMul", shares, values), perm=[0, 2, 1, 3])
    flat = write("Reshape", context, write.ints(-1, _DEPTH))
    projected = write("Gemm", flat, write.weight(_DEPTH, _DEPTH), write.weight(_DEPTH))
    return write("Reshape", projected, write.shape(batch, length, _DEPTH))


def whisper() -> ModelProto:
    """Whisper's decoder for a token behind others: cross attention reads the keys and values that the decoder without
    past gave, and positions are a slice of a table."""
    write = _Writer(4)
    _decoder(write, has_past=True)
    return write.model(_IDS, {**_past(), **_encoded("past_key_values")}, {"logits": _LOGITS, **_present()})


def merged_whisper() -> ModelProto:
    """Both of Whisper's decoders in one file: a branch computes a token behind others, and gives nothing in place of
    what the other one gives for cross attention."""
    branches, held = dict[str, Any](), list[TensorProto]()
    outputs = {"logits": _LOGITS, **_present(), **_encoded("present")}
    for name, has_past in (("then_branch", True), ("else_branch", False)):
        write = _Writer(4, name[:4])
        _decoder(write, has_past=has_past)
        for each in _encoded("present") if has_past else ():
            write("Identity", write.held(np.zeros((0, HEADS, 1, WIDTH), np.float32)), output=each)
        held += write.tensors
        branches[name] = helper.make_graph(write.nodes, name, [], _values(outputs))
    write = _Writer(4)
    choice = helper.make_node("If", ["use_cache_branch"], [*outputs], name="optimum::if")
    choice.attribute.extend(helper.make_attribute(name, branch) for name, branch in branches.items())
    write.nodes.append(choice)
    given = {"encoder_hidden_states": ("batch_size", "encoder_sequence_length", _DEPTH)}
    model = write.model(_IDS, {**given, **_past(), **_encoded("past_key_values")}, outputs, check=False)
    model.graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    model.graph.initializer.extend(held)
    checker.check_model(model)
    return model


_PAST = "past_decoder_sequence_length"
_IDS = {"input_ids": ("batch_size", "decoder_sequence_length")}
_LOGITS = ("batch_size", "decoder_sequence_length", WORDS)
_ENCODER, _OWN = ("encoder.key", "encoder.value"), ("decoder.key", "decoder.value")


def _encoded(prefix: str) -> Shapes:
    return _Writer.caches(prefix, "encoder_sequence_length_out", _ENCODER)


def _past() -> Shapes:
    return _Writer.caches("past_key_values", _PAST, _OWN)


def _present() -> Shapes:
    return _Writer.caches("present", f"{_PAST} + 1", _OWN)


def _decoder(write: _Writer, *, has_past: bool) -> None:
    """The decoder, from tokens to logits and caches."""
    length = write.size("input_ids", 1)
    past = write.size("past_key_values.0.decoder.key", 2) if has_past else write.number(0)
    bounds = (write.shape(each) for each in (past, write("Add", past, length)))
    words = write.weight(WORDS, _DEPTH)
    places = write("Slice", write.weight(POSITIONS, _DEPTH), *bounds, write.ints(0))
    x = write("Add", write("Gather", words, "input_ids"), places)
    for layer in range(LAYERS):
        y = write.normalised(x)
        query, key, value = (write.heads(write.projected(y)) for _ in range(3))
        caches = [
            write("Concat", f"past_key_values.{layer}.{kind}", each, output=f"present.{layer}.{kind}", axis=2)
            if has_past
            else write("Identity", each, output=f"present.{layer}.{kind}")
            for kind, each in zip(_OWN, (key, value), strict=True)
        ]
        x = write("Add", x, write.attended(query, *caches))
        query = write.heads(write.projected(write.normalised(x)))
        # Both have the same weights, which one of them does not read.
        weights = [(write.weight(_DEPTH, _DEPTH), write.weight(_DEPTH)) for _ in _ENCODER]
        encoded = [f"past_key_values.{layer}.{kind}" for kind in _ENCODER]
        for kind, (weight, bias) in zip(_ENCODER, () if has_past else weights, strict=not has_past):
            split = write.heads(write("Add", write("MatMul", "encoder_hidden_states", weight), bias))
            encoded.append(write("Identity", split, output=f"present.{layer}.{kind}"))
        x = write("Add", x, write.attended(query, *encoded[-2:]))
        x = write("Add", x, write.forward(write.normalised(x)))
    write("MatMul", write.normalised(x), write.weight(_DEPTH, WORDS), output="logits")


@dataclass
class _Writer:
    """Collects nodes and weights.

    Attributes:
        seed: of the weights.
        prefix: of names.
        nodes: that were written.
    """

    seed: int
    prefix: str = ""
    nodes: list[NodeProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin without any."""
        self._random = np.random.default_rng(self.seed)
        self._held = dict[str, np.ndarray]()

    def many(self, kind: str, *inputs: str, **attributes: Any) -> list[str]:
        names = [f"{self.prefix}{kind.lower()}_{len(self.nodes)}_{part}" for part in range(3)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=f"/{self.prefix}n{len(self.nodes)}", **attributes))
        return names

    def __call__(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{self.prefix}{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, inputs, [name], name=f"/{self.prefix}n{len(self.nodes)}", **attributes)
        )
        return name

    def held(self, array: np.ndarray) -> str:
        name = f"{self.prefix}c{len(self._held)}"
        self._held[name] = array
        return name

    def number(self, value: float) -> str:
        return self.held(np.array(value, np.int64 if isinstance(value, int) else np.float32))

    def ints(self, *values: int) -> str:
        return self.held(np.array(values, np.int64))

    def weight(self, *shape: int) -> str:
        return self.held((self._random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def size(self, name: str, axis: int) -> str:
        return self("Gather", self("Shape", name), self.number(axis), axis=0)

    def shape(self, *sizes: int | str) -> str:
        parts = [self.ints(each) if isinstance(each, int) else self("Unsqueeze", each, self.ints(0)) for each in sizes]
        return self("Concat", *parts, axis=0)

    def projected(self, x: str) -> str:
        return self("Add", self("MatMul", x, self.weight(_DEPTH, _DEPTH)), self.weight(_DEPTH))

    def heads(self, x: str) -> str:
        split = self("Reshape", x, self.shape(self.size(x, 0), self.size(x, 1), HEADS, WIDTH))
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def attended(self, query: str, keys: str, values: str) -> str:
        """Attention by products of matrices, heads of all sequences side by side."""
        batch, length = self.size(query, 0), self.size(query, 2)
        query, keys, values = (
            self("Reshape", each, self.shape(-1, self.size(each, 2), WIDTH)) for each in (query, keys, values)
        )
        scaled = self("Mul", query, self.number(WIDTH**-0.5))
        scores = self("MatMul", scaled, self("Transpose", keys, perm=[0, 2, 1]))
        context = self("MatMul", self("Softmax", scores, axis=-1), values)
        context = self("Reshape", context, self.shape(batch, HEADS, length, WIDTH))
        joined = self("Transpose", context, perm=[0, 2, 1, 3])
        return self.projected(self("Reshape", joined, self.shape(batch, length, _DEPTH)))

    def normalised(self, x: str) -> str:
        centred = self("Sub", x, self("ReduceMean", x, axes=[-1]))
        variance = self("ReduceMean", self("Pow", centred, self.number(2.0)), axes=[-1])
        root = self("Sqrt", self("Add", variance, self.number(1e-5)))
        return self(
            "Add", self("Mul", self("Div", centred, root), self.held(np.ones(_DEPTH, np.float32))), self.weight(_DEPTH)
        )

    def forward(self, x: str) -> str:
        y = self("Add", self("MatMul", x, self.weight(_DEPTH, 2 * _DEPTH)), self.weight(2 * _DEPTH))
        spread = self("Add", self("Erf", self("Div", y, self.number(2.0**0.5))), self.number(1.0))
        y = self("Mul", self("Mul", y, spread), self.number(0.5))
        return self("Add", self("MatMul", y, self.weight(2 * _DEPTH, _DEPTH)), self.weight(_DEPTH))

    @staticmethod
    def caches(prefix: str, length: str, kinds: Sequence[str]) -> dict[str, tuple[int | str, ...]]:
        shape = ("batch_size", HEADS, length, WIDTH)
        return {f"{prefix}.{layer}.{kind}": shape for layer in range(LAYERS) for kind in kinds}

    @property
    def tensors(self) -> list[TensorProto]:
        return [numpy_helper.from_array(array, name) for name, array in self._held.items()]

    def model(self, ids: Shapes, inputs: Shapes, outputs: Shapes, *, check: bool = True) -> ModelProto:
        given = [*_values(ids, TensorProto.INT64), *_values(inputs)]
        graph = helper.make_graph(self.nodes, "main_graph", given, _values(outputs), self.tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=7)
        if check:
            checker.check_model(model)
        return model


def _values(shapes: Shapes, kind: int = TensorProto.FLOAT) -> list[ValueInfoProto]:
    return [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
