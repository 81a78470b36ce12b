"""Names by which ONNX nodes that read or write the row of a loop's step are known after the import."""

from __future__ import annotations

_MARK = "sartor.loop:"
TAKE, TAKE_BACK, PUT, PUT_BACK = (f"{_MARK}{part}" for part in ("take_row", "take_row_back", "put_row", "put_row_back"))
"""Ends of the nodes' names, which no exporter gives: reading or writing, the first step at the first row or at the last
one."""
