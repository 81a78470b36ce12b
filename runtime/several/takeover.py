"""Which of a file's two plans runs: one for the first inference, until the one for later inferences is prepared.

To prepare it is to bring the weights into memory that only it reads, which the reader of the file does behind those of
the first plan. Functions, code and memory for activations are there when the module is loaded. So nothing has to be
done between two inferences but to call another function.
"""

from __future__ import annotations

import logging
import threading

from sartor.runtime.mapping.free_memory import free_bytes
from sartor.runtime.several.successor import Successor

_LOG = logging.getLogger(__name__)
# What stays free of the machine's memory; fewer bytes than these are not worth asking for it.
_LEFT_FREE = 64 << 20
_FEW = 8 << 20


class Takeover:
    """Chooses the function of each run of a session."""

    def __init__(self, label: str, first: str, later: Successor) -> None:
        """Begin with the plan for the first inference.

        Args:
            label: names the file in messages.
            first: the function that runs the first inference.
            later: the plan that takes over.
        """
        self._label = label
        self._first = first
        self._later = later
        self._has_run = False
        self._prepared = threading.Event()

    def entry(self) -> str:
        """The function that the next run calls: the first one's, until there was one and the other is prepared."""
        chosen = self._later.entry if self._has_run and self._prepared.is_set() else self._first
        self._has_run = True
        return chosen

    def prepare(self) -> None:
        """Let the other plan take over, now that its weights were read, unless memory is too small for both.

        Then the first plan goes on: what its runs read would be dropped from memory by what the other reads, and the
        other way round.
        """
        added = self._later.weight_bytes
        free = free_bytes() if added > _FEW else None
        if free is not None and free < added + _LEFT_FREE:
            _LOG.info(
                "%s keeps to its plan for first inferences: later ones need %d MiB more, and %d MiB are free",
                self._label,
                added >> 20,
                free >> 20,
            )
            return
        self._prepared.set()

    def settle(self) -> None:
        """Leave the first inference's plan out, as somebody has waited for the other."""
        self._has_run = True
