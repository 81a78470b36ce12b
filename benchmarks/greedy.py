"""Greedy tokens of a decoder in float32 beside ONNX Runtime's, and the memory that caches take.

    python -m benchmarks.greedy --tokens 512 -o build/greedy
    python -m benchmarks.greedy --tokens 512 --model decoder.onnx --module decoder.vmfb

The decoder is that of a file and its module, or one that is written as Optimum exports them: keys and values are
appended by Concat, and lengths are open. ONNX Runtime has the caches that it gave for the token before bound. Exit code
1 if a token differs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

import sartor
from benchmarks.decoding import Peer, cache_bytes, feeds
from sartor.config import CompileConfig
from sartor.runtime.session import Session

Array = NDArray[Any]
Step = Callable[[int, int], Array]
"""Logits behind a token at a position."""
Continued = tuple[list[int], int, float]
HEADS, HEAD, LAYERS, WORDS, POSITIONS = 8, 64, 4, 4096, 1024
WIDTH = HEADS * HEAD
_PLACES = ("input_ids", "position_ids")
_BEGIN = (3, 1415, 92, 653, 5)
_PAGE = os.sysconf("SC_PAGE_SIZE")

app = typer.Typer(help=__doc__)


class _Writer:
    """Collects nodes and seeded weights."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.held: list[TensorProto] = []
        self._random = np.random.default_rng(0)

    def __call__(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def hold(self, values: Any, dtype: Any = np.int64) -> str:
        self.held.append(numpy_helper.from_array(np.asarray(values, dtype), f"held_{len(self.held)}"))
        return str(self.held[-1].name)

    def product(self, x: str, rows: int, columns: int) -> str:
        drawn = self._random.standard_normal((rows, columns)) / math.sqrt(rows)
        return self("MatMul", x, self.hold(drawn, np.float32))

    def rows(self, count: int, index: str) -> str:
        return self("Gather", self.hold(self._random.standard_normal((count, WIDTH)), np.float32), index)

    def normalised(self, x: str) -> str:
        scale, shift = self.hold(np.ones(WIDTH), np.float32), self.hold(np.zeros(WIDTH), np.float32)
        return self("LayerNormalization", x, scale, shift, axis=-1)

    def heads(self, x: str) -> str:
        split = self("Reshape", self.product(x, WIDTH, WIDTH), self.hold([0, 0, HEADS, HEAD]))
        return self("Transpose", split, perm=[0, 2, 1, 3])


def decoder() -> onnx.ModelProto:
    """The model: tokens and caches to logits and caches."""
    write = _Writer()
    x = write("Add", write.rows(WORDS, "input_ids"), write.rows(POSITIONS, "position_ids"))
    for layer in range(LAYERS):
        x = _layer(write, x, layer)
    write("Identity", write.product(write.normalised(x), WIDTH, WORDS), output="logits")
    return _model(write)


def _layer(write: _Writer, x: str, layer: int) -> str:
    inner = write.normalised(x)
    query, key, value = (write.heads(inner) for _ in range(3))
    keys, values = (
        write("Concat", f"past_key_values.{layer}.{kind}", each, output=f"present.{layer}.{kind}", axis=2)
        for kind, each in (("key", key), ("value", value))
    )
    scores = write("MatMul", query, write("Transpose", keys, perm=[0, 1, 3, 2]))
    shares = write("Softmax", write("Div", scores, write.hold(math.sqrt(HEAD), np.float32)), axis=-1)
    context = write("Transpose", write("MatMul", shares, values), perm=[0, 2, 1, 3])
    joined = write.product(write("Reshape", context, write.hold([0, 0, WIDTH])), WIDTH, WIDTH)
    x = write("Add", x, joined)
    wide = write("Relu", write.product(write.normalised(x), WIDTH, 4 * WIDTH))
    return write("Add", x, write.product(wide, 4 * WIDTH, WIDTH))


def _model(write: _Writer) -> onnx.ModelProto:
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", 1]) for name in _PLACES]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 1, WORDS])
    caches = [
        [
            helper.make_tensor_value_info(f"{name}.{layer}.{kind}", TensorProto.FLOAT, ["batch", HEADS, length, HEAD])
            for layer in range(LAYERS)
            for kind in ("key", "value")
        ]
        for name, length in (("past_key_values", "past"), ("present", "past + 1"))
    ]
    graph = helper.make_graph(write.nodes, "decoder", [*given, *caches[0]], [logits, *caches[1]], write.held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE


def continued(step: Step, count: int) -> Continued:
    """Tokens, each the likeliest behind those before, the memory of the process behind them, and the seconds."""
    for place, token in enumerate(_BEGIN):
        logits = step(token, place)
    tokens, begin = list[int](), time.perf_counter()
    for place in range(len(_BEGIN), len(_BEGIN) + count):
        tokens.append(int(logits.argmax()))
        logits = step(tokens[-1], place)
    return tokens, resident(), time.perf_counter() - begin


def by_sartor(_: Path, module: Path, count: int) -> Continued:
    """What a session generates that keeps the caches."""
    with Session(module, threads=1) as session:
        inputs = [each.name for each in session.get_inputs()]
        return continued(lambda token, place: session.run(["logits"], feeds(inputs, [token], place))[0], count)


def by_other(model: Path, _: Path, count: int) -> Continued:
    """What ONNX Runtime generates, which gets caches and gives longer ones."""
    peer = Peer(model, threads=1)
    peer.begin(peer.empty)
    return continued(lambda token, place: peer.run([token], place), count)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    return next((index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), None)


@app.command()
def main(
    tokens: Annotated[int, typer.Option(help="How many tokens follow the prompt.")] = 512,
    output: Annotated[Path, typer.Option("-o", help="Folder for the model and the module.")] = Path("build/greedy"),
    model: Annotated[Path | None, typer.Option(help="An ONNX file in place of the decoder that is written.")] = None,
    module: Annotated[Path | None, typer.Option(help="The module of --model; compiled by default.")] = None,
) -> None:
    """Compile the decoder by predicted times, and generate by both."""
    source = model or output / "decoder.onnx"
    if model is None:
        output.mkdir(parents=True, exist_ok=True)
        onnx.save(decoder(), source)
    if module is None:
        output.mkdir(parents=True, exist_ok=True)
        module = output / "decoder.vmfb"
        sartor.compile(source, CompileConfig(threads=1, time_budget=0, database=output / "tuning.db"), output=module)
    # Each in a process of its own, whose memory holds nothing else.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as alone:
        ours, theirs = (alone.submit(run, source, module, tokens).result() for run in (by_sartor, by_other))
    live = cache_bytes(source, tokens + len(_BEGIN))
    for name, (_, held, seconds) in (("Sartor", ours), ("ONNX Runtime", theirs)):
        memory = f"{held / 2**20:.0f} MiB in memory, {live / 2**20:.1f} of them caches that live"
        print(f"{name}: {tokens / seconds:.1f} tokens/s; {memory}")
    place = _first_difference(ours[0], theirs[0])
    print(f"{tokens} tokens of {len(set(theirs[0]))} words are equal" if place is None else f"token {place} differs")
    raise typer.Exit(0 if place is None else 1)


if __name__ == "__main__":
    app()
