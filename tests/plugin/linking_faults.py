"""Worker side: what may happen to the worker that compiles a whole network, halfway through."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

from sartor.tuning.networks.build_job import NetFiles, build_net
from sartor.tuning.workers.program import _data_bytes

_HALF = 4096
_ROOM = 4 << 20


def abort(files: NetFiles, **arguments: Any) -> int:
    """As MLIR's assertions do."""
    _write_half(files)
    print("assertion")
    os.abort()


def run_out_of_memory(**arguments: Any) -> int:
    """Really, in IREE's compiler."""
    limit = _data_bytes() + _ROOM
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    return build_net(**arguments)


def be_killed_once(files: NetFiles, **arguments: Any) -> int:
    """By somebody else; the next time nothing happens."""
    mark = files.module.with_suffix(".mark")
    if not mark.exists():
        mark.touch()
        _write_half(files)
        os.kill(os.getpid(), signal.SIGKILL)
    return build_net(files=files, **arguments)


def be_killed(files: NetFiles, **arguments: Any) -> int:
    """By somebody else, each time."""
    _write_half(files)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _write_half(files: NetFiles) -> None:
    for path in (files.module, files.weights):
        if path is not None:
            Path(path).write_bytes(bytes(_HALF))
