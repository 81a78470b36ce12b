"""The few names of the protobuf runtime that are used, which ship without type information."""

from __future__ import annotations

from google.protobuf.message import DecodeError, EncodeError, Message  # type: ignore[import-untyped]

__all__ = ["DecodeError", "EncodeError", "Message"]
