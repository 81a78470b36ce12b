"""Short hashes of texts."""

from __future__ import annotations

import hashlib


def digest(*parts: str) -> str:
    """A short stable hash of texts in their order."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
