"""Scratch memory of code, beyond its arguments and results, found in the text of its dispatches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.target import Target
from sartor.codegen.ir.variants.routine import Implementation
from sartor.codegen.mlir.dispatches import lower

# IREE's offsets of tensors in a buffer that they share.
_ALIGNMENT = 64
_DEFINITION = re.compile(r"\s*%(?P<name>[\w$.]+)(?::\d+)? = (?P<op>[\w.]+)(?P<rest> .*)")
_VALUE = re.compile(r"%([\w$.]+(?:#\d+)?)")
_TENSOR = re.compile(r"tensor<[^<>]*>")
# Sizes that are known only when it runs follow a tensor's type.
_SIZES = re.compile(r"\{[^{}]*\}")
_RETURN = "util.return"
_SAME_BYTES = "flow.tensor.reshape"
_UPDATE = "flow.tensor.update"


def scratch_of(implementations: Mapping[int, Implementation], target: Target) -> dict[int, int]:
    """Worker side: bytes of scratch of each implementation, under its own number.

    Raises:
        CompileError: if any of them does not lower.
    """
    # Kernels are single dispatches without intermediate tensors, and emitting them takes long.
    functions = {
        number: implementation.body
        for number, implementation in implementations.items()
        if implementation.kernel is not None
    }
    others = {
        f"s{number}": implementation
        for number, implementation in implementations.items()
        if implementation.kernel is None
    }
    functions |= {int(symbol[1:]): code.function for symbol, code in lower(others, target).items()}
    return {number: scratch_bytes(function) for number, function in functions.items()}


def aligned(size: int) -> int:
    """Bytes of a tensor in a shared buffer, rounded up to IREE's alignment."""
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def scratch_bytes(function: str) -> int:
    """The peak of bytes of live intermediate tensors in a lowered function.

    Args:
        function: text of a ``util.func`` after the flow phase: dispatches, and ops on tensors.
    """
    lines = function.splitlines()
    tensors = _Intermediates()
    for number, line in enumerate(lines):
        if line.lstrip().startswith(_RETURN):
            tensors.give_away(line)
        elif match := _DEFINITION.match(line):
            tensors.define(number, match)
    return tensors.peak(len(lines))


@dataclass
class _Intermediates:
    """The intermediate tensors of a function, and the lines at which they are live.

    Attributes:
        owners: value to the value in whose memory it lies.
        tensors: each value with separate memory, and its type as text: results that are given away may have sizes that
            are known only when it runs.
        lives: first and last line at which each of these values is live.
    """

    owners: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    lives: dict[str, tuple[int, int]] = field(default_factory=dict)

    def define(self, number: int, match: re.Match[str]) -> None:
        """Record the results of an op: new tensors, or tensors that overwrite an operand."""
        operands = _VALUE.findall(match["rest"])
        if match["op"] == _UPDATE:
            self._write_in_place(operands[0], operands[1])
        for operand in operands:
            if (owner := self.owners.get(operand)) in self.lives:
                self.lives[owner] = self.lives[owner][0], number
        for name, written in _results(match):
            owner = operands[0] if match["op"] == _SAME_BYTES else written.owner
            if owner is not None:
                self.owners[name] = self.owners.get(owner, owner)
            else:
                self.owners[name], self.tensors[name], self.lives[name] = name, written.tensor, (number, number)

    def _write_in_place(self, part: str, whole: str) -> None:
        """Record that a tensor is written directly into the larger one that contains it (IREE's EmplaceAllocations)."""
        owner, larger = self.owners.get(part), self.owners.get(whole)
        if owner is None or larger is None or owner == larger or owner not in self.lives or larger not in self.lives:
            return
        first, _ = self.lives.pop(owner)
        self.lives[larger] = min(first, self.lives[larger][0]), self.lives[larger][1]
        self.owners = {name: larger if other == owner else other for name, other in self.owners.items()}

    def give_away(self, line: str) -> None:
        """Do not count returned tensors, whose memory belongs to the caller."""
        for value in _VALUE.findall(line):
            self.lives.pop(self.owners.get(value, value), None)

    def peak(self, lines: int) -> int:
        change = [0] * (lines + 1)
        for name, (first, last) in self.lives.items():
            size = aligned(TensorType.parse(self.tensors[name]).bytes)
            change[first] += size
            change[last + 1] -= size
        return max(accumulate(change))


class _Written(NamedTuple):
    """A result: the operand that it is written to, or else its own type."""

    owner: str | None
    tensor: str


def _results(match: re.Match[str]) -> Iterator[tuple[str, _Written]]:
    """Each result's name, and what it is written to."""
    if not match["op"].startswith("flow."):
        return
    rest = _SIZES.sub("", match["rest"])
    _, arrow, after = rest.rpartition(" -> ")
    written = after if arrow else rest.rpartition(" : ")[2]
    targets = written.strip("() ").split(", ")
    for index, target in enumerate(targets):
        name = match["name"] if len(targets) == 1 else f"{match['name']}#{index}"
        if value := _VALUE.match(target):
            yield name, _Written(value[1], "")
        elif tensor := _TENSOR.match(target):
            yield name, _Written(None, tensor[0])
