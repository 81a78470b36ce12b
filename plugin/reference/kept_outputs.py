"""ONNX Runtime's outputs of earlier compilations, by what was imported and what it was run on.

An import has its key by the content of the model's file, by all source, and by the versions of programs and the
processor. They lie beside the import, under names that begin as its own does, so that both are forgotten together.
"""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

from sartor.reference.reference_job import ReferenceOutputs, ReferenceRun
from sartor.tuning.kept.values import KeptValues

_MOST_BYTES = 64 << 20


def kept_outputs(kept: KeptValues, key: str, run: ReferenceRun) -> ReferenceOutputs | None:
    """What a run gave in an earlier compilation; None if that is not known.

    Args:
        kept: where imports are kept.
        key: of the import of the model.
        run: the run.
    """
    content = kept.restore(_key(key, run), Path())
    outputs: ReferenceOutputs | None = None if content is None else pickle.loads(content)
    return outputs


def keep_outputs(kept: KeptValues, key: str, run: ReferenceRun, outputs: ReferenceOutputs) -> None:
    """Keep what a run gave for later compilations, if it does not take much room, and nothing was said that would have
    to be said again; arguments as of ``kept_outputs``."""
    if outputs.has_warned:
        return
    if sum(array.nbytes for array in (*outputs.arrays, *outputs.scales)) <= _MOST_BYTES:
        kept.keep(_key(key, run), pickle.dumps(outputs, pickle.HIGHEST_PROTOCOL), [], [])


def _key(key: str, run: ReferenceRun) -> str:
    bound = [(str(value.spec), value.values) for value in run.bound]
    hashed = hashlib.sha256(f"{run.threads} {run.narrow} {len(run.models)} {bound}\0".encode())
    for name, array in sorted(run.feeds.items()):
        hashed.update(f"{name} {array.dtype} {array.shape}\0".encode())
        hashed.update(array.tobytes())
    return f"{key}-{hashed.hexdigest()}"
