"""The names that exporters give to states: those of an input and of the output that the next call reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

# Hugging Face's Optimum, ONNX Runtime's converters, and PyTorch's exporter of language models.
_CACHES = (("past_key_values", "present"), ("past", "present"))
# Inputs that say how long caches are, as of DecoderMaskedMultiHeadAttention, are none.
_COUNTING = ("_length", "_lengths", "_len")
# A name with these around it is a state only if it says that it is one.
_PREFIXES = ("next_", "new_", "updated_")
_SUFFIXES = ("_next", "_new", "_out", "_updated")
_BEFORE = ("prev_", "previous_", "last_")
# WeNet's encoders.
_WENET = "r_"
_STATEFUL = re.compile(
    r"(?:^|[_./])(?:states?|hidden|cell|memory|caches?|cached|hx?|cx?|h0|c0)(?=$|[_./\d])", re.IGNORECASE
)
# Activations between a transformer's blocks.
_ACTIVATIONS = "hidden_states"
_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])")
# The whole names of LSTMs' states: Silero's detectors of speech, PyTorch's examples.
_WHOLE = {
    "h": ("hn", "h_n", "h_out", "hout"),
    "c": ("cn", "c_n", "c_out", "cout"),
    "h0": ("hn", "h_n"),
    "c0": ("cn", "c_n"),
    "h_0": ("h_n",),
    "c_0": ("c_n",),
    "state": ("stateN", "state_n", "staten"),
}
_SPELLED_IN = re.compile(r"(?P<stem>.*?)(?P<mark>_?in|_?In|_?IN|_input|Input)(?P<rest>[_.]?\d*)")
# NVIDIA's NeMo.
_BEGUN_IN = re.compile(r"(?P<mark>in|In|IN|input|Input)(?P<rest>_.+)")
_OUT = {"in": "out", "In": "Out", "IN": "OUT", "input": "output", "Input": "Output"}


def is_state_pair(input: str, output: str) -> bool:
    """Whether exporters name a state so: as an input, and as the output that takes its place."""
    return input != output and output in successors(input)


def is_cache(input: str) -> bool:
    """Whether exporters name a cache of attention so, of which a model has several that belong together."""
    is_named = any(re.match(rf"{past}(?![A-Za-z])", input) for past, _ in _CACHES)
    return is_named and not input.endswith(_COUNTING)


def successors(input: str) -> Iterator[str]:
    """The names that the output may have which takes the place of an input."""
    for past, present in _CACHES:
        if re.match(rf"{past}(?![A-Za-z])", input):
            yield present + input.removeprefix(past)
    yield from _WHOLE.get(input, ())
    if _ACTIVATIONS in input or not _STATEFUL.search(_BORDER.sub("_", input)):
        return
    yield from (f"{prefix}{input}" for prefix in (*_PREFIXES, _WENET))
    yield from (f"{input}{suffix}" for suffix in _SUFFIXES)
    yield from (input.removeprefix(before) for before in _BEFORE if input.startswith(before))
    if (begun := _BEGUN_IN.fullmatch(input)) is not None:
        yield f"{_OUT[begun['mark']]}{begun['rest']}"
    if (spelled := _SPELLED_IN.fullmatch(input)) is not None:
        mark = spelled["mark"]
        yield f"{spelled['stem']}{mark[: len(mark) - len(mark.strip('_'))]}{_OUT[mark.strip('_')]}{spelled['rest']}"
