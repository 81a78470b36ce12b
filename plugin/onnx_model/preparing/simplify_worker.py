"""``python -m sartor.onnx_model.preparing.simplify_worker``: run onnxslim within limits, silent unless it fails.

It imports onnxslim, then waits for what ``start`` gives on standard input: the name of a folder, in which it reads
``SOURCE``, writes ``TARGET``, and keeps temporary files.
"""

from __future__ import annotations

import contextlib
import gc
import io
import math
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from onnx import ModelProto

from sartor.onnx_model.preparing.faster_onnxslim import (
    comparing_by_key,
    folding_in_one_thread,
    load_onnxslim,
    skipping_settled,
)

SOURCE, TARGET = "in.onnx", "out.onnx"

_FOLDED_BYTES = 2**16
_MEMORY_FACTOR = 8
# Of addresses, of which libraries take about a third.
_MEMORY_BASE = 3 * 2**30
# New objects before a collection, and collections of each generation before one of the next; 700, 10 and 10 by default.
_SELDOM = (100_000, 50, 50)


def start(folder: str, seconds: float) -> bytes:
    """What lets the worker begin on standard input, in a folder, for so many seconds of a processor."""
    return f"{math.ceil(seconds)}\n".encode() + os.fsencode(folder)


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Let Python collect garbage seldom: a model of thousands of nodes is many objects, which stay, and each collection
    goes through them. Without, onnxslim takes a third less time, and rewrites a fifth."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def limit(size: int, seconds: int) -> None:
    """Limit memory, and time of processors from now on, which other programs do not use up."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    end = math.ceil(used.ru_utime + used.ru_stime) + seconds
    for kind, least in ((resource.RLIMIT_AS, size), (resource.RLIMIT_CPU, end), (resource.RLIMIT_CORE, 0)):
        most = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (least if most == resource.RLIM_INFINITY else min(least, most), most))


def simplify_bytes(data: bytes) -> bytes:
    """Simplify a serialised ONNX model by onnxslim; returns the serialised result.

    Fusions are off: they rename layers, turn MatMul into reshaped Gemm, and IREE does not need them. Eliminations,
    common subexpressions and bounded constant folding are on.

    Raises:
        ValueError: onnxslim returned no model.
    """
    import onnxslim
    from onnxslim.core.pattern.registry import DEFAULT_FUSION_PATTERNS

    fusions = [name for name, matchers in DEFAULT_FUSION_PATTERNS.items() if _is_fusion(matchers)]
    with contextlib.redirect_stdout(io.StringIO()), comparing_by_key(), skipping_settled(), folding_in_one_thread():
        model = onnxslim.slim(ModelProto.FromString(data), skip_fusion_patterns=fusions, size_threshold=_FOLDED_BYTES)
    if model is None:
        raise ValueError("onnxslim returned no model")
    return bytes(model.SerializeToString())


def _is_fusion(matchers: list[object]) -> bool:
    return any(".fusion." in type(matcher).__module__ for matcher in matchers)


def serve_copy(connection: socket.socket) -> None:
    """As this program, in a copy of a process: a connection stands for standard input."""
    os.dup2(connection.fileno(), 0)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    _serve()


def _serve() -> None:
    load_onnxslim()
    seconds, folder = sys.stdin.buffer.readline(), os.fsdecode(sys.stdin.buffer.read())
    if not folder:
        return
    os.environ["TMPDIR"] = folder
    os.chdir(folder)
    data = Path(SOURCE).read_bytes()
    limit(_MEMORY_BASE + _MEMORY_FACTOR * len(data), int(seconds))
    with seldom_collected():
        Path(TARGET).write_bytes(simplify_bytes(data))


if __name__ == "__main__":
    _serve()
