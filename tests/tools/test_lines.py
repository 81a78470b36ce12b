"""Lines are counted by what they are."""

from __future__ import annotations

from tools.lines import kinds

SOURCE = '''"""A module."""

import sys  # with a comment

# Why.
def twice(
    number: int,
) -> int:
    """Twice a number.

    That is all.
    """
    # Because.
    return (
        2 * number
    )
'''


def test_each_line_is_counted_once() -> None:
    counted = kinds(SOURCE)
    assert counted.total() == len(SOURCE.splitlines())
    assert counted == {"docstrings": 5, "blank": 2, "imports": 1, "comments": 2, "signatures": 3, "statements": 3}
