"""Texts in MLIR."""

from __future__ import annotations


def quoted(text: str) -> str:
    """``text`` as an MLIR string: all but plain printable ASCII as hexadecimal bytes."""
    escaped = "".join(chr(byte) if byte in _PLAIN_BYTES else f"\\{byte:02X}" for byte in text.encode())
    return f'"{escaped}"'


_PLAIN_BYTES = frozenset(range(0x20, 0x7F)) - frozenset(b'"\\')
