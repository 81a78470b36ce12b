"""Finds results that lie in the memory of what they were computed from, as of code that writes a few rows of a buffer.

Code that IREE lowers may tie its result to an argument: it writes over that, or over a copy if something else reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_VALUE = re.compile(r"%[\w$]+(?:#\d+)?")
_DEFINITION = re.compile(r"\s*(?P<name>%[\w$]+)(?::\d+)? = (?P<rest>.*)")
_CALL = re.compile(r"util\.call @(?P<symbol>[\w$.]+)\((?P<arguments>[^)]*)\)")
_RESHAPE = re.compile(r"flow\.tensor\.reshape (?P<source>%[\w$]+) :")
_TIED = re.compile(r"flow\.dispatch @.*-> (?P<source>%[\w$]+)$")
_HEAD = re.compile(r"util\.func [^\n]*@(?P<symbol>[\w$.]+)\((?P<arguments>[^\n]*)\) -> ")
_RETURN = "util.return "


def is_written_over(
    taken: str, given: str, lines: Sequence[str], returned: Sequence[str], code: Mapping[str, str]
) -> bool:
    """Whether a result lies in the memory of an input, which nothing else reads.

    Args:
        taken: the value of the input.
        given: that of the result.
        lines: what is computed, calls of code.
        returned: values of all results.
        code: text by its name.
    """
    made, value = _by_name(lines), given
    if list(returned).count(given) > 1 or taken in returned:
        return False
    while value != taken:
        call = _CALL.match(made.get(value, ""))
        if call is None:
            return False
        place = overwritten(call["symbol"], code.get(call["symbol"], ""))
        arguments = _VALUE.findall(call["arguments"])
        if place is None or place >= len(arguments):
            return False
        value = arguments[place]
        if value in returned or sum(_VALUE.findall(rest).count(value) for rest in made.values()) > 1:
            return False
    return given != taken


def overwritten(symbol: str, text: str) -> int | None:
    """The position of the argument in whose memory the only result of a piece of code lies; None if there is none."""
    head = next((match for match in _HEAD.finditer(text) if match["symbol"] == symbol), None)
    if head is None:
        return None
    body = text[head.end() :].splitlines()
    end = next((index for index, line in enumerate(body) if _RETURN in line), 0)
    value, made = body[end].partition(_RETURN)[2].partition(" :")[0].strip(), _by_name(body[:end])
    arguments = [word.partition(":")[0] for word in re.findall(r"%[\w$]+:", head["arguments"])]
    while value not in arguments:
        rest = made.get(value, "")
        tied = _TIED.match(rest)
        step = tied or _RESHAPE.match(rest)
        if step is None:
            return None
        value = step["source"]
        # An operand that a result is tied to is named twice.
        if sum(_VALUE.findall(line).count(value) for line in made.values()) > (2 if tied else 1):
            return None
    return arguments.index(value)


def _by_name(lines: Iterable[str]) -> dict[str, str]:
    """What defines each value."""
    matches = (_DEFINITION.match(line) for line in lines)
    return {match["name"]: match["rest"].strip() for match in matches if match is not None}
