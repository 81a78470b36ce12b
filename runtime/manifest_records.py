"""Reads the records of a manifest that few manifests have.

Each is defined in a file that is imported where there is one, as its definition takes as long as a small layer to run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sartor.runtime.files.json_fields import Fields, checked, listed, record, text, whole

if TYPE_CHECKING:
    from sartor.runtime.driver.bound_input import BoundInput
    from sartor.runtime.driver.cache import Cache, Prompt
    from sartor.runtime.driver.noise import Noise
    from sartor.runtime.driver.state import State
    from sartor.runtime.files.open_sizes import GivenSize, OpenSize
    from sartor.runtime.segments.record import Segment
    from sartor.runtime.several.record import Alternative

_MOST_BYTES = 1 << 63


def read_bound(content: object, where: str) -> tuple[BoundInput, ...]:
    """The inputs that a module does not take, with their values."""
    if content == []:
        return ()
    from sartor.runtime.driver.bound_input import BoundInput

    return listed(BoundInput.read)(content, where)


def read_segments(content: object, where: str) -> tuple[Segment, ...]:
    """The parts that run on several devices."""
    from sartor.runtime.segments.record import Segment

    return listed(Segment.read)(content, where)


def read_alternatives(content: object, where: str) -> tuple[Alternative, ...]:
    """The plans of a file with several."""
    if content == []:
        return ()
    from sartor.runtime.several.record import Alternative

    return listed(Alternative.read)(content, where)


def read_sizes(content: object, where: str) -> tuple[OpenSize, ...]:
    """The sizes that callers choose."""
    from sartor.runtime.files.open_sizes import OpenSize

    return listed(OpenSize.read)(content, where)


def read_given(content: object, where: str) -> tuple[GivenSize, ...]:
    """The sizes of outputs that follow from those that callers choose."""
    from sartor.runtime.files.open_sizes import GivenSize

    return listed(GivenSize.read)(content, where)


def read_noise(content: object, where: str) -> tuple[Noise, ...]:
    """The inputs that stand for random operators."""
    from sartor.runtime.driver.noise import Noise

    return listed(Noise.read)(content, where)


def read_states(content: object, where: str) -> tuple[State, ...]:
    """The pairs of inputs and outputs that the module can keep."""
    from sartor.runtime.driver.state import State

    return listed(State.read)(content, where)


def read_prompts(content: object, where: str) -> tuple[Prompt, ...]:
    """The functions for parts of a prompt."""
    from sartor.runtime.driver.cache import Prompt

    return listed(Prompt.read)(content, where)


def read_prompt(content: object, where: str) -> tuple[Prompt, ...]:
    """The one function for parts of a prompt of files that could have one."""
    from sartor.runtime.driver.cache import Prompt

    return (Prompt.read(content, where),)


def read_caches(content: object, where: str) -> tuple[Cache, ...]:
    """The inputs and outputs that the module keeps as caches that grow."""
    from sartor.runtime.driver.cache import Cache

    return listed(Cache.read)(content, where)


def read_successor(content: object, where: str) -> dict[str, Any]:
    """The record of a plan for later inferences: its function, the bytes of weights that only it reads, and itself."""
    fields = Fields(content, where)
    read = {
        "entry": fields.take("entry", text),
        "weight_bytes": fields.take("weight_bytes", checked(whole, _check_bytes)),
        "plan": fields.take("plan", record),
    }
    fields.end()
    return read


def _check_bytes(count: int) -> None:
    if not 0 <= count < _MOST_BYTES:
        raise ValueError(f"{count} is no number of bytes")
