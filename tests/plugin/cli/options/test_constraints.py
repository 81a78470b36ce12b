"""What options that constrain a plan are read as."""

from __future__ import annotations

import pytest

from sartor.cli.options.constraints import read_memory_limit
from sartor.config import CompileConfig
from sartor.errors import UsageError


@pytest.mark.parametrize(
    ("text", "found"), [("274512", 274512), ("0", 0), ("1.5MiB", 3 << 19), ("2 GB", 2_000_000_000)]
)
def test_a_size_without_a_unit_is_in_bytes_as_messages_say_it(text: str, found: int) -> None:
    assert read_memory_limit(text) == found
    assert CompileConfig(threads=1, memory_limit=text).memory_limit == found  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["-1", "1.5", "much", "", "9" * 30])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--memory-limit"):
        read_memory_limit(text)
