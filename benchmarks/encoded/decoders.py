"""Decoders of 4 bits beside ONNX Runtime and llama.cpp: one token behind others, and prompts.

    python -m benchmarks.encoded.decoders build -o build/decoders --threads 1 --tokens 1 --tokens 128
    python -m benchmarks.encoded.decoders time -o build/decoders --threads 1

llama.cpp takes part if ``llama_cpp`` (llama-cpp-python) can be imported; ``LLAMA_CPP_LIB_PATH`` names the folder of its
library where that was built apart. All are timed in turn in one process, and logits of prompts compared. A single token
comes behind 128 others, whose caches are random but in llama.cpp, which has read them.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
import typer

import sartor
from benchmarks.encoded.decoder import Decoder, write_gguf, write_onnx
from sartor.config import CompileConfig
from sartor.runtime.benchmark import time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session

app = typer.Typer(help=__doc__)
_PAST, _CONTEXT = 128, 1024
_LEVELS = (0, 4)
_FILE = "decoder.gguf"
_PEER = "llama.cpp"


@app.command()
def build(
    output: Annotated[Path, typer.Option("-o", help="Folder.")] = Path("build/decoders"),
    tokens: Annotated[list[int], typer.Option(help="Read at once; repeatable.")] = [1, 32, 128, 512],  # noqa: B006
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    seconds: Annotated[float, typer.Option(help="Time budget of each compilation.")] = 20.0,
) -> None:
    """Write all files, and compile the models."""
    output.mkdir(parents=True, exist_ok=True)
    write_gguf(Decoder(), output / _FILE, _CONTEXT)
    for count in tokens:
        for level in _LEVELS:
            model = output / f"{count}.{level}.onnx"
            write_onnx(Decoder(), model, count, _PAST if count == 1 else 0, level)
            module = output / f"{count}.{level}.{threads}.vmfb"
            config = CompileConfig(threads=threads, time_budget=seconds, database=output / "tuning.db")
            sartor.compile(model, config, output=module)
            print(module, flush=True)


@app.command()
def time(
    output: Annotated[Path, typer.Option("-o", help="Folder.")] = Path("build/decoders"),
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    seconds: Annotated[float, typer.Option(help="For each number of tokens.")] = 8.0,
) -> None:
    """Show milliseconds, and how far logits are from ONNX Runtime's at level 0."""
    for count in sorted({int(path.name.partition(".")[0]) for path in output.glob(f"*.{threads}.vmfb")}):
        calls = _calls(output, count, threads)
        right = np.asarray(calls["ONNX Runtime level 0"]()).reshape(-1)
        errors = {
            name: np.abs(np.asarray(call()).reshape(-1) - right).max() / np.abs(right).max()
            for name, call in calls.items()
            if name != _PEER or count > 1
        }
        for name, sample in time_interleaved(calls, min_rounds=3, min_seconds=seconds).items():
            took = sample.quantile(0.25) * 1e3
            error = f", error {errors[name]:.1e}" if name in errors else ""
            print(f"{count} tokens, {threads} threads, {name}: {took:.2f} ms{error}", flush=True)


def _calls(folder: Path, count: int, threads: int) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; each returns logits of the last token."""
    past, ids = np.split(np.random.default_rng(2).integers(0, Decoder().words, _PAST + count), [_PAST])
    past = past if count == 1 else past[:0]
    calls: dict[str, Callable[[], Any]] = {}
    for level in _LEVELS:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        path = folder / f"{count}.{level}.onnx"
        runtime = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        feeds = {"input_ids": ids[None].astype(np.int64), **_caches(past)}
        calls[f"ONNX Runtime level {level}"] = partial(_first, runtime.run, feeds)
        session = Session(folder / f"{count}.{level}.{threads}.vmfb", threads=threads)
        calls[f"Sartor from level {level}"] = partial(_first, session.run, feeds)
    library = _library()
    if library is not None:
        peer = _Llama(library, folder / _FILE, threads)
        peer.read(past)
        calls[_PEER] = partial(peer.logits_behind, len(past), ids)
    return calls


def _first(run: Callable[..., Any], feeds: dict[str, Array]) -> Any:
    return run(None, feeds)[0]


def _caches(past: Array) -> dict[str, Array]:
    """Random keys and values of all layers, if there are tokens before."""
    of, random = Decoder(), np.random.default_rng(3)
    names = [f"past.{layer}.{part}" for layer in range(of.layers) for part in "kv"] if len(past) else []
    return {name: random.standard_normal((1, of.groups, len(past), of.head)).astype(np.float32) for name in names}


def _library() -> Any:
    """The functions of llama.cpp; None if they are not installed."""
    try:
        return importlib.import_module("llama_cpp.llama_cpp")
    except ModuleNotFoundError:
        print("llama_cpp is not installed, so llama.cpp is left out")
        return None


class _Llama:
    """A context of llama.cpp that reads a file with a number of threads."""

    def __init__(self, library: Any, path: Path, threads: int) -> None:
        self._library = library
        library.llama_backend_init()
        model = library.llama_model_load_from_file(str(path).encode(), library.llama_model_default_params())
        options = library.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = _CONTEXT
        options.n_threads = options.n_threads_batch = threads
        self._context = library.llama_init_from_model(model, options)

    def read(self, ids: Array) -> None:
        """Append tokens."""
        if len(ids):
            tokens = (self._library.llama_token * len(ids))(*ids.tolist())
            if self._library.llama_decode(self._context, self._library.llama_batch_get_one(tokens, len(ids))):
                raise typer.BadParameter("llama.cpp could not read the tokens")
            self._library.llama_synchronize(self._context)

    def logits_behind(self, past: int, ids: Array) -> Array:
        """Logits of the last of some tokens behind the first ``past`` ones."""
        memory = self._library.llama_get_memory(self._context)
        self._library.llama_memory_seq_rm(memory, 0, past, -1)
        self.read(ids)
        logits = self._library.llama_get_logits(self._context)
        return np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (Decoder().words,)).copy()


if __name__ == "__main__":
    app()
