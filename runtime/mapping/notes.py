"""Telling a program's log what it is rarely told: logging is imported where there is something to say."""

from __future__ import annotations


def note(logger: str, message: str, *arguments: object) -> None:
    """Tell a logger, by its name, for information."""
    import logging

    logging.getLogger(logger).info(message, *arguments)
