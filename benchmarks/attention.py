"""Attention alone, as a file for any number of keys, beside ONNX Runtime: time, and memory by the number of keys.

    python -m benchmarks.attention build/attention --heads 12x64,12x32,4x64 --lengths 512,1024,2048

Compiles a model for each number of heads and elements of a head, with the options behind ``--``, and keeps what lies in
the folder already. Queries, keys and values are rows of a network, from which heads are taken apart; a mask is added to
the scores. ONNX Runtime runs the same nodes, and a model with its own operator ``MultiHeadAttention`` in their place.
Working memory is what a call allocates besides its inputs and outputs, beside the bytes of all scores.
"""

from __future__ import annotations

import math
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import typer
from onnx import helper

from benchmarks.networks.exported import Exported
from benchmarks.open_sizes import is_near
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.memory import allocated_bytes
from sartor.runtime.module_facts import module_signature
from sartor.runtime.reference import OnnxRuntimeReference
from sartor.runtime.session import Session

app = typer.Typer(help=__doc__)
_ROWS = ("query", "key", "value")
_MOST_KEYS = 4096
_FAR = -1e4
_MIB = 1 << 20


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Where models and modules are kept.")],
    options: Annotated[list[str] | None, typer.Argument(help="Options of each compilation.")] = None,
    heads: Annotated[str, typer.Option(help="Heads by elements of each.")] = "12x64,12x32,4x64",
    lengths: Annotated[str, typer.Option(help="Numbers of queries and keys.")] = "512,1024,2048",
    threads: Annotated[int, typer.Option(help="Threads of each runtime.")] = 1,
    seconds: Annotated[float, typer.Option(help="Duration of the timing of a length.")] = 1.0,
    rounds: Annotated[int, typer.Option(help="Blocks of runs that each runtime has at least.")] = 5,
    block: Annotated[float, typer.Option(help="Duration of a block.")] = BLOCK,
) -> None:
    """Time attention, and count its memory; prints a table in Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    print("| heads | keys | ms | the same nodes | MultiHeadAttention | working MiB | scores MiB |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for count, depth in (map(int, sizes.split("x")) for sizes in heads.split(",")):
        models = [saved_model(folder, count, depth, is_one=is_one) for is_one in (False, True)]
        module = _compiled(models[0], options or ())
        peers = [OnnxRuntimeReference(model, threads=threads, is_timed=True) for model in models]
        with Session(module, threads=threads) as session:
            for length in map(int, lengths.split(",")):
                feeds = drawn(count * depth, length)
                (own,) = session.run(None, feeds)
                if not all(is_near(own, peer(feeds)[0]) for peer in peers):
                    raise typer.BadParameter(f"'{module}' is wrong for {length} keys")
                runs = {str(number): partial(peer, feeds) for number, peer in enumerate(peers)}
                runs["own"] = partial(session.run, None, feeds)
                timed = time_interleaved(runs, min_rounds=rounds, min_seconds=seconds, block=block, pause=PAUSE)
                mine, *others = (timed[name].median for name in ("own", "0", "1"))
                ratios = " | ".join(f"{other / mine:.2f}" for other in others)
                held = f"{working_bytes(module, feeds, own) / _MIB:.2f} | {4 * count * length**2 / _MIB:.1f}"
                print(f"| {count}x{depth} | {length} | {mine * 1e3:.2f} | {ratios} | {held} |", flush=True)


def attention(heads: int, depth: int, *, is_one: bool) -> onnx.ModelProto:
    """Attention of any number of rows, as plain nodes or as ONNX Runtime's one operator."""
    net, width = Exported("attention"), heads * depth
    rows = [net.input(name, ["batch", "length", width]) for name in _ROWS]
    mask = net.input("mask", ["batch", 1, 1, "length"])
    if is_one:
        seen = net(
            "Cast", net("Equal", net("Squeeze", mask, net.numbers(1, 2)), net.hold(0)), to=onnx.TensorProto.INT32
        )
        net("MultiHeadAttention", *rows, "", seen, output="mixed", domain="com.microsoft", num_heads=heads)
    else:
        shape = net("Shape", rows[0])
        sides = [net("Gather", shape, net.numbers(axis), axis=0) for axis in (0, 1)]
        apart = net("Concat", *sides, net.numbers(heads, depth), axis=0)
        turns = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        query, key, value = (
            net("Transpose", net("Reshape", part, apart), perm=turn) for part, turn in zip(rows, turns, strict=True)
        )
        scores = net("Mul", net("MatMul", query, key), net.hold(1 / math.sqrt(depth)))
        mixed = net("MatMul", net("Softmax", net("Add", scores, mask), axis=-1), value)
        joined = net("Concat", *sides, net.numbers(width), axis=0)
        net("Reshape", net("Transpose", mixed, perm=[0, 2, 1, 3]), joined, output="mixed")
    net.output("mixed", ["batch", "length", width])
    return net.model()


def drawn(width: int, length: int) -> dict[str, Array]:
    """Rows of N(0, 1), and a mask that hides the last eighth of the keys."""
    random = np.random.default_rng(length)
    feeds = {name: random.standard_normal((1, length, width), np.float32) for name in _ROWS}
    mask = np.where(np.arange(length) < length - length // 8, 0, _FAR).astype(np.float32)
    return {**feeds, "mask": mask.reshape(1, 1, 1, length)}


def working_bytes(module: Path, feeds: Mapping[str, Array], output: Array) -> int:
    """The bytes that a call allocates besides its inputs and outputs."""
    allocated = allocated_bytes(module, feeds, module_signature(module), {})
    if allocated is None:
        raise typer.BadParameter("this IREE counts no bytes")
    passed = sum(array.nbytes for array in feeds.values()) + output.nbytes
    return allocated.peak - allocated.loaded - passed


def saved_model(folder: Path, heads: int, depth: int, *, is_one: bool) -> Path:
    """The path of attention, which is written there."""
    model, path = (
        attention(heads, depth, is_one=is_one),
        folder / f"{heads}x{depth}{'.operator' if is_one else ''}.onnx",
    )
    if is_one:
        model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, path)
    return path


def _compiled(model: Path, options: Sequence[str]) -> Path:
    module = model.with_suffix(".vmfb")
    if not module.exists():
        program = Path(sysconfig.get_path("scripts"), "compile-to-vmfb")
        shape = f"--shape=mask=1,1,1,1..{_MOST_KEYS}"
        subprocess.run([str(program), str(model), "-o", str(module), shape, *options], check=True)
    return module


if __name__ == "__main__":
    app()
