"""Which targets' code this machine runs."""

from __future__ import annotations

import platform

import pytest

from sartor.codegen.target import Target
from sartor.target_check import runs_here


@pytest.mark.parametrize(
    ("machine", "architecture", "expected"),
    [
        ("x86_64", "host", True),
        ("x86_64", "x86-64-v3", True),
        ("x86_64", "x86_64:haswell", True),
        ("x86_64", "aarch64:neoverse-n1", False),
        ("AMD64", "x86_64:haswell", True),
        ("arm64", "aarch64:apple-m1", True),
        ("aarch64", "aarch64:neoverse-n1", True),
        ("aarch64", "x86_64:haswell", False),
    ],
)
def test_a_cpu_runs_code_of_its_instruction_set(
    monkeypatch: pytest.MonkeyPatch, machine: str, architecture: str, expected: bool
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert runs_here(Target.create("cpu", architecture)) == expected
