"""Tables: what they show of results, and what they leave out of means."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.record.documents import figure, with_results
from benchmarks.record.results import Entry, Result
from benchmarks.record.tables import TABLES, mean_speedup, precision_table
from sartor.errors import UsageError
from tests.benchmarks.record.made_results import MADE, entry, zoo_result


def test_a_mean_is_of_right_results_over_the_faster_peer() -> None:
    results = [
        zoo_result("a", entry([1.0]), ort=entry([2.0]), openvino=entry([3.0])),
        zoo_result("b", entry([1.0]), ort=entry([8.0]), openvino=entry([4.5])),
        zoo_result("wrong", entry([1.0], error=0.1), ort=entry([100.0])),
        zoo_result("wrong peer", entry([1.0]), ort=entry([0.1], error=math.nan)),
    ]
    mean, count = mean_speedup(results)
    assert mean == pytest.approx(3.0)
    assert count == 2


def test_the_table_of_speed_says_what_is_wrong_and_what_failed(tmp_path: Path) -> None:
    zoo_result("a", entry([1.0]), ort=entry([2.0]), iree=entry([9.0], error=0.5)).save(tmp_path)
    Result("zoo", "b", 1, MADE, {}, {"Sartor": "does not\ncompile"}).save(tmp_path)
    table = TABLES["speed of the zoo"](tmp_path)
    assert "| a | 1.00 | 2.00 | - | 9.00 (wrong) | - | 2.00 | 1e-06 | 0123456789 |" in table
    assert "| b | - | - | - | - | - | - | - | 0123456789 |" in table
    assert "- b: Sartor failed: does not compile" in table
    assert "2.00, 1 of 2 networks" in table
    assert "a processor, x86_64, 2 cores (avx2, avx512f); onnxruntime 1.32.0" in table


def test_numbers_of_threads_are_tables_of_their_own(tmp_path: Path) -> None:
    for threads in (1, 2):
        zoo_result("a", entry([1.0 / threads]), threads, ort=entry([2.0])).save(tmp_path)
    table = TABLES["speed of the zoo"](tmp_path)
    assert table.index("| 1 thread |") < table.index("| 2 threads |")
    assert "Geometric mean over the faster of the two peers: 4.00, 1 of 1 networks." in table


def test_short_networks_are_shown_with_bound_memory_too(tmp_path: Path) -> None:
    entries = {who: entry([each]) for who, each in [("Sartor, bound", 0.01), ("ONNX Runtime, bound", 0.02)]}
    slow = {who: entry([each]) for who, each in [("Sartor, bound", 1.0), ("ONNX Runtime, bound", 2.0)]}
    Result("zoo", "short", 1, MADE, entries).save(tmp_path)
    Result("zoo", "long", 1, MADE, slow).save(tmp_path)
    table = TABLES["speed of the zoo"](tmp_path)
    assert "| short, bound memory | 0.0100 | 0.0200 | - | - | - | 2.00 |" in table
    assert "long, bound" not in table


def test_plans_beside_a_neighbour_are_compared_with_plans_alone(tmp_path: Path) -> None:
    entries = {
        "tuned alone": entry([2.0]),
        "tuned beside a neighbour": entry([3.0]),
        "compiled again, alone": entry([2.0], error=0.5),
    }
    Result("neighbour", "a", 1, MADE, entries).save(tmp_path)
    assert "| a | 1 thread | 2.00 | 3.00 | 2.00 (wrong) | 1.50 | - |" in TABLES["neighbour"](tmp_path)


def test_predictions_are_those_before_correction(tmp_path: Path) -> None:
    facts = {"predicted seconds": 1e-3, "foreseen seconds": 0.9e-3, "then measured seconds": 1e-3}
    ours = Entry(((1e-3,),), facts=facts)
    zoo_result("a", ours).save(tmp_path)
    table = TABLES["predictions"](tmp_path)
    assert "| a | 1 | 0.900 | 1.00 | -10.0% |" in table
    zoo_result("b", replace(ours, error=0.5, facts={**facts, "foreseen seconds": 5e-3})).save(tmp_path)
    assert TABLES["predictions"](tmp_path) == table


def test_compilations_are_told_by_their_median_and_the_longest(tmp_path: Path) -> None:
    for name, seconds in (("a", 10.0), ("b", 20.0), ("c", 60.0)):
        cold, again = (Entry(((each,),), facts={"network ms": 1.5}) for each in (seconds, 2.0))
        Result("tuning", name, 1, MADE, {"cold": cold, "once more": again}).save(tmp_path)
    Result("tuning", "d", 1, MADE, {}, {"cold": "exit code 5: no plan"}).save(tmp_path)
    table = TABLES["tuning"](tmp_path)
    assert "- d: cold failed: exit code 5: no plan" in table
    assert "| b | 20 | 2.0 | 1.5 | 0123456789 |" in table
    assert "Median 20 s, longest 60 s, 3 networks." in table


def test_errors_stand_beside_times_in_lower_precision(tmp_path: Path) -> None:
    entries = {
        "OpenVINO int8": Entry(((4e-3,),), 0.1, None),
        "int8 within 0.01": Entry(((2e-3,),), 0.008, 0.01, {"layers": "3 int8"}),
        "hybrid within 0.01": Entry(((1e-3,),), 0.02, 0.01),
    }
    Result("precision", "a", 1, MADE, entries).save(tmp_path)
    table = precision_table(tmp_path)
    assert "| int8 within 0.01 | 2.00 | 8.0e-03 | 2.00 | - | 3 int8 |" in table
    assert "| hybrid within 0.01 | 1.00 | 2.0e-02 (allowed 1.0e-02) | - | - |  |" in table


def test_the_rival_in_lower_precision_is_the_fastest_that_is_so_exact(tmp_path: Path) -> None:
    """In bf16 a peer may be faster than in 8 bits; within a small budget only its f32 counts."""
    entries = {
        "ONNX Runtime": Entry(((9e-3,),), 0.0, None),
        "OpenVINO": Entry(((8e-3,),), 1e-6),
        "OpenVINO bf16": Entry(((3e-3,),), 0.04, None),
        "OpenVINO int8": Entry(((4e-3,),), 0.2, None),
        "bf16 within 0.01": Entry(((4e-3,),), 0.005, 0.01),
        "int8 within OpenVINO's": Entry(((2e-3,),), 0.1, 0.15),
        "hybrid within OpenVINO's": Entry(((2e-3,),), 0.02, 0.03),
    }
    Result("precision", "a", 1, MADE, entries).save(tmp_path)
    table = precision_table(tmp_path)
    assert "| bf16 within 0.01 | 4.00 | 5.0e-03 | 1.00 | 2.00 (OpenVINO) |  |" in table
    assert "| int8 within OpenVINO's | 2.00 | 1.0e-01 | 2.00 | 1.50 (OpenVINO bf16) |  |" in table
    assert "| hybrid within OpenVINO's | 2.00 | 2.0e-02 | 2.00 | 2.00 (OpenVINO int8) |  |" in table
    assert "| OpenVINO bf16 | 3.00 | 4.0e-02 | 1.33 |  |  |" in table


def test_documents_get_tables_and_figures(tmp_path: Path) -> None:
    zoo_result("a", entry([2.0]), ort=entry([3.0])).save(tmp_path)
    text = (
        "It takes <!-- figure: zoo a 1: Sartor -->9<!-- end --> ms, "
        "<!-- figure: zoo a 1: ONNX Runtime / Sartor --><!-- end --> of it.\n"
        "<!-- table: speed of the zoo -->\nold\n<!-- end of table -->\nThe end."
    )
    written = with_results(text, tmp_path)
    assert "-->2<!-- end --> ms" in written
    assert "-->1.50<!-- end --> of it" in written
    assert "old" not in written
    assert written.endswith("<!-- end of table -->\nThe end.")
    assert with_results(written, tmp_path) == written
    assert figure("zoo 1: mean", tmp_path) == "1.50"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("zoo b 1: Sartor", "no result has the figure"),
        ("zoo a 2: Sartor", "no result has the figure"),
        ("zoo a 1: OpenVINO / Sartor", "no result has the figure"),
        ("zoo 2: mean", "a mean of nothing"),
        ("zebra 1: mean", "no experiment 'zebra'"),
        ("a", "names no figure"),
    ],
)
def test_a_figure_without_result_is_refused(tmp_path: Path, name: str, said: str) -> None:
    zoo_result("a", entry([2.0])).save(tmp_path)
    with pytest.raises(UsageError, match=said):
        figure(name, tmp_path)
