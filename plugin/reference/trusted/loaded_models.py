"""Limits how many reference models of large files are loaded at a time: ONNX Runtime packs their weights in memory."""

from __future__ import annotations

import weakref
from typing import Protocol

MOST_BYTES = 512 << 20
"""Of weights that are loaded in a process at a time, unless one model has more."""


class Unloadable(Protocol):
    """A model that can be loaded again.

    Attributes:
        mapped_bytes: of its weights in files, of which it has a copy when it is loaded.
    """

    mapped_bytes: int

    def unload(self) -> None:
        """Free what it takes, until it is needed again."""


class LoadedModels:
    """The models that are loaded, the one that ran last at the end; models that nobody else refers to are forgotten.

    Args:
        most_bytes: of the weights of all of them, unless one has more.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most = most_bytes
        self._models: list[weakref.ref[Unloadable]] = []

    def begin(self, model: Unloadable) -> None:
        """Unload others to make room for a model that is about to be loaded, or to run."""
        if not model.mapped_bytes:
            return
        others = [other for reference in self._models if (other := reference()) is not None and other is not model]
        while others and sum(other.mapped_bytes for other in others) + model.mapped_bytes > self._most:
            others.pop(0).unload()
        self._models = [weakref.ref(loaded) for loaded in (*others, model)]


LOADED = LoadedModels()
"""Those of this process."""
