"""The cost model of the package's times, trained when they were written: training takes a second or two.

It lies beside the times, as arrays, with a fingerprint of these, of the features of some, and of what is learned of
those that were left out. Where that is not the present one the model is trained as if none was stored.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from sartor.tuning.search.boosting.trees import Trees
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.shipped.left_out import left_out

# Of so many samples one is looked at for its features.
_STEP = 50
_FINGERPRINT = "fingerprint"


def write_guide(model: CostModel, times: Path, samples: Sequence[Sample]) -> Path:
    """Write a model that was trained on the ``samples`` of a file of times beside it; returns the file."""
    path = _beside(times)
    arrays: dict[str, Any] = {field.name: getattr(model.trees, field.name) for field in fields(Trees)}
    arrays[_FINGERPRINT] = np.array(_fingerprint(times, samples))
    np.savez_compressed(path, **arrays)
    return path


def stored_guide(times: Path, samples: Sequence[Sample]) -> CostModel | None:
    """The model that is stored beside a file of times; None if there is none that fits the file and its ``samples``."""
    try:
        with np.load(_beside(times), allow_pickle=False) as stored:
            if str(stored[_FINGERPRINT]) != _fingerprint(times, samples):
                return None
            return CostModel(Trees(**{field.name: stored[field.name] for field in fields(Trees)}))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None


def _beside(times: Path) -> Path:
    return times.with_name(f"{times.name.partition('.')[0]}.trees.npz")


def _fingerprint(times: Path, samples: Sequence[Sample]) -> str:
    """Changes with the times, with what features say of them, and with what is said of those that were left out."""
    hashed = hashlib.sha256(times.read_bytes())
    for sample in samples[::_STEP]:
        hashed.update(" ".join(f"{number:.6g}" for number in sample.features).encode())
    for sample in left_out(samples):
        hashed.update(f"{sample.facts} {sample.variant.descriptor} {sample.seconds:.6g}".encode())
    return hashed.hexdigest()
