"""Notes whether anything was said while something was computed, which would not be said again if it were kept."""

from __future__ import annotations

import logging


class HeardWarnings(logging.Handler):
    """A context that notes whether anything was said in it that the user should hear."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.has_heard = False

    def emit(self, record: logging.LogRecord) -> None:
        """Note that something was said."""
        self.has_heard = True

    def __enter__(self) -> HeardWarnings:
        logging.getLogger("sartor").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("sartor").removeHandler(self)
