"""Decoders of 4 bits beside ONNX Runtime, OpenVINO and llama.cpp: one token behind others, and prompts.

    python -m benchmarks.encoded.decoders build -o build/decoders --threads 1 --tokens 1 --tokens 128
    python -m benchmarks.encoded.decoders time -o build/decoders --threads 1
    python -m benchmarks.encoded.decoders tokens -o build/decoders --threads 1
    python -m benchmarks.encoded.decoders greedy -o build/decoders --threads 1

OpenVINO takes part if it can be imported, as it is and with activations in f32, and llama.cpp if ``llama_cpp``
(llama-cpp-python) can be; ``LLAMA_CPP_LIB_PATH`` names the folder of its library where that was built apart.

All are timed in turn in one process, a quarter of a second each behind a pause, as threads of some spin after a run,
and logits of prompts compared. A single token comes behind 128 others, whose caches are random but in llama.cpp, which
has read them, and lie where calls read them. What a token reads is told as a part of the most that as many threads read
from memory in the same time, in turn with the others; of ``--size 24x1024`` no cache holds the weights.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import numpy as np
import onnxruntime
import typer

import sartor
from benchmarks.encoded.decoder import Decoder, write_gguf, write_onnx
from sartor.codegen.ir.target import Target
from sartor.config import CompileConfig
from sartor.runtime.benchmark import BLOCK, PAUSE, time_interleaved
from sartor.runtime.driver.signature import Array
from sartor.runtime.session import Session

app = typer.Typer(help=__doc__)
_PAST, _CONTEXT = 128, 1024
_LEVELS = (0, 4)
_FILE = "decoder.gguf"
_PEER = "llama.cpp"
_SIZES: Mapping[str, Decoder] = {
    "6x768": Decoder(),
    "24x1024": Decoder(layers=24, width=1024, inner=2816, heads=16),
}
_READ, _READING = 1 << 28, "reading memory"
_OF_OPENVINO: Mapping[str, Mapping[str, Any]] = {
    "OpenVINO": {},
    "OpenVINO in f32": {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"},
}


@app.command()
def build(
    output: Annotated[Path, typer.Option("-o", help="Folder.")] = Path("build/decoders"),
    tokens: Annotated[list[int], typer.Option(help="Read at once; repeatable.")] = [1, 32, 128, 512],  # noqa: B006
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    seconds: Annotated[float, typer.Option(help="Time budget of each compilation.")] = 20.0,
    size: Annotated[str, typer.Option(help=f"Of the decoder, of {', '.join(_SIZES)}.")] = "6x768",
    cpu: Annotated[str, typer.Option(help="The CPU, or level, that modules are made for.")] = "host",
) -> None:
    """Write all files, and compile the models."""
    output.mkdir(parents=True, exist_ok=True)
    write_gguf(_SIZES[size], output / _FILE, _CONTEXT)
    for count in tokens:
        for level in _LEVELS:
            model = output / f"{count}.{level}.onnx"
            write_onnx(_SIZES[size], model, count, _PAST if count == 1 else 0, level)
            module = output / f"{count}.{level}.{threads}.vmfb"
            database = output / "tuning.db"
            config = CompileConfig(Target.create("cpu", cpu), threads=threads, time_budget=seconds, database=database)
            sartor.compile(model, config, output=module)
            print(module, flush=True)


@app.command()
def time(
    output: Annotated[Path, typer.Option("-o", help="Folder.")] = Path("build/decoders"),
    threads: Annotated[int, typer.Option(help="Threads.")] = 1,
    seconds: Annotated[float, typer.Option(help="For each number of tokens.")] = 8.0,
    size: Annotated[str, typer.Option(help="As for build.")] = "6x768",
) -> None:
    """Show milliseconds, and how far logits are from ONNX Runtime's at level 0."""
    of = _SIZES[size]
    for count in sorted({int(path.name.partition(".")[0]) for path in output.glob(f"*.{threads}.vmfb")}):
        calls = _calls(of, output, count, threads)
        right = np.asarray(calls["ONNX Runtime level 0"]()).reshape(-1)
        errors = {
            name: np.abs(np.asarray(call()).reshape(-1) - right).max() / np.abs(right).max()
            for name, call in calls.items()
            if name != _PEER or count > 1
        }
        reader = _Reader(threads)
        every: dict[str, Callable[[], object]] = {**calls, **({_READING: reader} if count == 1 else {})}
        timed = time_interleaved(every, min_rounds=3, min_seconds=seconds, block=BLOCK, pause=PAUSE)
        took = {name: sample.quantile(0.25) for name, sample in timed.items()}
        bandwidth = threads * _READ / reader.best
        for name in calls:
            error = f", error {errors[name]:.1e}" if name in errors else ""
            part = f", {of.bytes_read(_PAST) / took[name] / bandwidth:.0%} of the bandwidth" if count == 1 else ""
            print(f"{count} tokens, {threads} threads, {name}: {took[name] * 1e3:.2f} ms{error}{part}", flush=True)
        if count == 1:
            print(f"{threads} threads read {bandwidth / 1e9:.1f} GB/s", flush=True)


@app.command()
def tokens(
    output: Annotated[Path, typer.Option("-o", help="Folder.")] = Path("build/decoders"),
    threads: Annotated[int, typer.Option(help="Threads that the modules are for.")] = 1,
    count: Annotated[int, typer.Option(help="Random tokens, each behind random caches.")] = 256,
) -> None:
    """Show for how many tokens the likeliest next one is that of ONNX Runtime's level 0, and how many others are
    explained: the two likeliest are nearer than twice the error of the logits."""
    runtime = _session(output / "1.0.onnx", 1)
    modules = {level: Session(output / f"1.{level}.{threads}.vmfb", threads=threads) for level in _LEVELS}
    runs: dict[str, Callable[..., Any]] = {f"Sartor from level {level}": each.run for level, each in modules.items()}
    runs["ONNX Runtime level 4"] = _session(output / "1.4.onnx", 1).run
    gaps: dict[str, list[float]] = {name: [] for name in runs}
    random = np.random.default_rng(7)
    for _ in range(count):
        feeds = {
            value.name: random.integers(0, Decoder().words, value.shape)
            if value.type == "tensor(int64)"
            else random.standard_normal(value.shape).astype(np.float32)
            for value in runtime.get_inputs()
        }
        right = _first(runtime.run, feeds).reshape(-1)
        least, most = np.sort(right)[-2:]
        for name, run in runs.items():
            logits = np.asarray(_first(run, feeds)).reshape(-1)
            if logits.argmax() != right.argmax():
                gaps[name].append((most - least) / (2 * np.abs(logits - right).max()))
    for name, ratios in gaps.items():
        explained = sum(ratio <= 1 for ratio in ratios)
        print(f"{name}: {count - len(ratios)} of {count} agree, {explained} of the {len(ratios)} others are explained")


@app.command()
def greedy(
    output: Annotated[Path, typer.Option("-o", help="Folder.")] = Path("build/decoders"),
    threads: Annotated[int, typer.Option(help="Threads that the modules are for.")] = 1,
    tokens: Annotated[int, typer.Option(help="Read for each new one: the last of those before.")] = 32,
    count: Annotated[int, typer.Option(help="Tokens that are generated.")] = 256,
) -> None:
    """Generate, each by its own likeliest tokens, and show how many of these are those of ONNX Runtime's level 0.

    Exit code 1 if a token differs of the module that rounds no activations.
    """
    right = continued(_session(output / f"{tokens}.0.onnx", 1).run, tokens, count)
    same = {}
    for level in _LEVELS:
        module = Session(output / f"{tokens}.{level}.{threads}.vmfb", threads=threads)
        same[level] = alike(continued(module.run, tokens, count), right)
        print(f"Sartor from level {level}: the first {same[level]} of {count} tokens are the same")
    rounded = alike(continued(_session(output / f"{tokens}.4.onnx", 1).run, tokens, count), right)
    print(f"ONNX Runtime level 4: the first {rounded} of {count} tokens are the same")
    if same[0] < count:
        raise typer.Exit(1)


def continued(run: Callable[..., Any], window: int, count: int) -> list[int]:
    """Tokens, each the likeliest behind the last ``window`` ones."""
    read: list[int] = np.random.default_rng(5).integers(0, Decoder().words, window).tolist()
    for _ in range(count):
        logits = _first(run, {"input_ids": np.array([read[-window:]], np.int64)})
        read.append(int(np.asarray(logits).argmax()))
    return read[window:]


def alike(found: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens are the same before the first that differs."""
    pairs = enumerate(zip(found, right, strict=True))
    return next((place for place, (one, other) in pairs if one != other), len(right))


def _session(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


class _Reader:
    """Reads ``_READ`` bytes of memory in each of some threads.

    Attributes:
        best: the shortest time that it took, in seconds; in others the system let threads share a processor.
    """

    def __init__(self, threads: int) -> None:
        self._parts = [np.ones(_READ // 4, np.float32) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads)
        self.best = math.inf

    def __call__(self) -> None:
        begin = perf_counter()
        list(self._pool.map(np.max, self._parts))
        self.best = min(self.best, perf_counter() - begin)


def _calls(of: Decoder, folder: Path, count: int, threads: int) -> dict[str, Callable[[], Any]]:
    """What is timed, by name; each returns logits of the last token."""
    past, ids = np.split(np.random.default_rng(2).integers(0, of.words, _PAST + count), [_PAST])
    past = past if count == 1 else past[:0]
    calls: dict[str, Callable[[], Any]] = {}
    for level in _LEVELS:
        runtime = _session(folder / f"{count}.{level}.onnx", threads)
        feeds = {"input_ids": ids[None].astype(np.int64), **_caches(of, past)}
        calls[f"ONNX Runtime level {level}"] = partial(_first, runtime.run, feeds)
        session = Session(folder / f"{count}.{level}.{threads}.vmfb", threads=threads)
        # Others read arrays where they are. A session copies them, but not what an earlier call left on its device.
        placed = {name: session.to_device(array) for name, array in feeds.items()}
        calls[f"Sartor from level {level}"] = partial(_first, session.run, placed)
    if (openvino := _installed("openvino")) is not None:
        for name, settings in _OF_OPENVINO.items():
            options = {"INFERENCE_NUM_THREADS": threads, **settings}
            peer = openvino.compile_model(folder / f"{count}.0.onnx", "CPU", options)
            calls[name] = partial(_first_of_openvino, peer.create_infer_request(), feeds)
    if (library := _installed("llama_cpp.llama_cpp")) is not None:
        llama = _Llama(library, folder / _FILE, threads, of.words)
        llama.read(past)
        calls[_PEER] = partial(llama.logits_behind, len(past), ids)
    return calls


def _first(run: Callable[..., Any], feeds: Mapping[str, Any]) -> Any:
    return run(None, feeds)[0]


def _first_of_openvino(request: Any, feeds: dict[str, Array]) -> Any:
    return request.infer(feeds, share_inputs=True)[0]


def _caches(of: Decoder, past: Array) -> dict[str, Array]:
    """Random keys and values of all layers, if there are tokens before."""
    random = np.random.default_rng(3)
    names = [f"past.{layer}.{part}" for layer in range(of.layers) for part in "kv"] if len(past) else []
    return {name: random.standard_normal((1, of.groups, len(past), of.head)).astype(np.float32) for name in names}


def _installed(name: str) -> Any:
    """A peer's module; None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        print(f"{name} is not installed and left out")
        return None


class _Llama:
    """A context of llama.cpp that reads a file with a number of threads."""

    def __init__(self, library: Any, path: Path, threads: int, words: int) -> None:
        self._library, self._words = library, words
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
        return np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self._words,)).copy()


if __name__ == "__main__":
    app()
