"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What a finding means for Sartor."""

    OK = "ok"
    """As it should be."""
    LIMITED = "limited"
    """Sartor works, with less speed, less exact times or fewer devices."""
    MISSING = "missing"
    """Something cannot be done without it, and nobody else needs it: it is there if the user wants it."""
    BROKEN = "broken"
    """Sartor cannot compile or run without it."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        topic: group of findings, such as ``processor``.
        name: what was looked at.
        found: what is there, as text; empty for nothing.
        state: what that means for Sartor.
        advice: what to do about it; empty where nothing has to be done.
    """

    topic: str
    name: str
    found: str
    state: State = State.OK
    advice: str = ""
