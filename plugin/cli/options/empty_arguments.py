"""Refuses empty arguments before any command reads them: an empty path would be the current folder."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sartor.errors import UsageError

_EMPTY_OPTION = re.compile(r"--[A-Za-z][\w-]*=")


def check_arguments(arguments: Sequence[str]) -> None:
    """Check that a command line, without the program's name, has no empty argument.

    Raises:
        UsageError: if one is empty, as where a shell's variable is not set.
    """
    for index, argument in enumerate(arguments):
        if _EMPTY_OPTION.fullmatch(argument):
            raise UsageError(f"{argument.removesuffix('=')} has an empty value; give one, or leave the option out")
        if not argument:
            before = f" after '{arguments[index - 1]}'" if index else ""
            raise UsageError(
                f"argument {index + 1} of the command line is empty{before}; give a value, or leave it out"
            )
