"""Mutations of bytes and JSON. The same random numbers give the same mutation."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

Mutate = Callable[[bytes, Random], bytes]

NUMBERS = (
    *(0, -1, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 65536),
    *(2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**31), -(2**63)),
)
"""64-bit integers at or next to common limits."""

REALS = (0.0, -0.0, 1e-300, 1e300, 3.5, -1.0, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    "",
    " ",
    "x",
    "x" * 3000,
    "../x",
    "/etc/passwd",
    "a\nb",
    'a"b\\c',
    "a\0b",
    "\N{SNOWMAN}",
    "%s{0}",
    "0",
    "inf",
    "cpu:f32/conv2d.nhwc{}",
    ":",
    "a:b",
    "x:99999999999999999999",
)
_DEEP = 5000
_MOST_EDITS = 4


def damage_bytes(data: bytes, random: Random) -> bytes:
    """Return the bytes after a few random edits: flips, overwrites, cuts, deletions, insertions and repetitions."""
    content = bytearray(data)
    for _ in range(random.randint(1, _MOST_EDITS)):
        if not content:
            break
        random.choice(_EDITS)(content, random)
    return bytes(content)


def _flip(content: bytearray, random: Random) -> None:
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _overwrite(content: bytearray, random: Random) -> None:
    place, size = random.randrange(len(content)), random.choice((1, 2, 4, 8))
    filler = random.choice((b"\xff", b"\x00", b"\x7f", b"\x80"))
    value = filler * size if random.random() < 0.5 else random.randbytes(size)
    content[place : place + size] = value[: len(content) - place]


def _cut(content: bytearray, random: Random) -> None:
    del content[random.randrange(len(content)) :]


def _delete(content: bytearray, random: Random) -> None:
    place = random.randrange(len(content))
    del content[place : place + random.choice((1, 2, 3, 16, 256))]


def _insert(content: bytearray, random: Random) -> None:
    place = random.randrange(len(content))
    content[place:place] = random.randbytes(random.choice((1, 2, 3, 16, 256)))


def _repeat(content: bytearray, random: Random) -> None:
    start, target = random.randrange(len(content)), random.randrange(len(content))
    content[target:target] = content[start : start + random.choice((4, 32, 512))] * random.choice((1, 1, 2, 20))


_EDITS = (_flip, _flip, _overwrite, _overwrite, _cut, _delete, _insert, _repeat)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def damage_json(data: bytes, random: Random) -> bytes:
    """Return a JSON text with wrong values, keys or nesting, or with damaged bytes; of several lines one is damaged."""
    if random.random() < 0.2:
        return damage_bytes(data, random)
    if len(lines := data.splitlines()) > 1 and all(_is_json(line) for line in lines):
        chosen = random.randrange(len(lines))
        return b"\n".join([*lines[:chosen], damage_json(lines[chosen], random), *lines[chosen + 1 :]])
    content = json.loads(data)
    for _ in range(random.randint(1, 3)):
        content = _edited(content, random)
    # Values that JSON lacks, such as NaN, are written in Python's notation, which some readers accept.
    text = json.dumps(content, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.05:
        deep = random.choice(('{"a":', "[")) * _DEEP
        place = random.randrange(len(text))
        text = text[:place] + deep + text[place:]
    return text.encode("utf-8", "surrogatepass")


def json_value(random: Random) -> Any:
    """Return a value that readers are unlikely to expect."""
    return random.choice(
        (
            lambda: random.choice(NUMBERS),
            lambda: random.choice(REALS),
            lambda: random.choice(TEXTS),
            lambda: random.choice((10**30, -(10**30), 10**400)),
            lambda: random.choice((None, True, False, [], {}, [None], {"": None}, "\ud800")),
        )
    )()


def _edited(content: Any, random: Random) -> Any:
    """Return a tree with one random change."""
    if not isinstance(content, (dict, list)) or not content or random.random() < 0.05:
        return json_value(random)
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    key = random.choice(keys)
    action = random.random()
    if action < 0.1:
        del content[key]
    elif action < 0.2 and isinstance(content, dict):
        content[random.choice(TEXTS)] = content.pop(key)
    elif action < 0.2 and isinstance(content, list):
        content.extend([content[key]] * random.choice((1, 3, 300)))
    elif action < 0.3:
        content[key] = json_value(random)
    else:
        content[key] = _edited(content[key], random)
    return content
