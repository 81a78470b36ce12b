"""The rules of the house catch what breaks them."""

from __future__ import annotations

import pytest

from tools.house import FREE_OF_THEM, MOST_LEFT, complaints_about, too_many

TAKES = "try:\n    check()\nexcept (KeyError, ValueError) as error:\n    answer = Rejected(str(error))\n"


@pytest.mark.parametrize(
    ("path", "source", "sentence"),
    [
        ("runtime/driver/device.py", "open('/proc/cpuinfo')", "which runtime/driver/cpuinfo.py alone reads"),
        ("runtime/driver/cpuinfo.py", "open('/proc/cpuinfo')", None),
        ("plugin/new.py", "A = {*('Reshape', 'Unsqueeze'), 'Squeeze', 'Tile'}", "take the set from plugin/onnx_model/"),
        ("plugin/new.py", "A = {'Reshape', 'Unsqueeze', 'Tile'}", None),
        ("plugin/new.py", "A = ['Scan', 'If', 'Loop']", "take the set from plugin/onnx_model/operator_types/alike.py"),
        ("codegen/routines/new.py", TAKES, "takes a ValueError for a rejection"),
        ("codegen/routines/new.py", TAKES.replace("ValueError", "OSError"), None),
        ("codegen/routines/new.py", TAKES.replace("Rejected", "refuse"), None),
        ("codegen/routines/new.py", TAKES.replace("ValueError", "RejectionError"), None),
        ("codegen/ir/variants/routine.py", TAKES, None),
        ("codegen/kernels/new.py", "if a: raise ValueError('odd')", "raises ValueError: raise RejectionError"),
        ("codegen/kernels/new.py", "if a: raise RejectionError('odd')", None),
        ("codegen/linking/new.py", "if a: raise ValueError('odd')", None),
        ("tuning/kept/new.py", "[each.name for each in files]", "has a variable 'each'"),
        ("tuning/kept/new.py", "def kept(found): ...", "has a variable 'found'"),
        ("tuning/kept/new.py", "for file in files: file.found()", None),
        ("tuning/new/new.py", "for each in files: ...", None),
    ],
)
def test_what_breaks_a_rule_is_told(path: str, source: str, sentence: str | None) -> None:
    told = list(complaints_about(path, source))
    assert len(told) == (sentence is not None)
    assert all(sentence is not None and sentence in complaint for complaint in told)


def test_the_list_of_free_folders_is_in_order() -> None:
    assert list(FREE_OF_THEM) == sorted(FREE_OF_THEM)


def test_names_that_say_nothing_become_no_more() -> None:
    assert not list(too_many(MOST_LEFT))
    (sentence,) = too_many({**MOST_LEFT, "runtime": MOST_LEFT["runtime"] + 1})
    assert sentence.startswith("runtime has ")
