"""Lists that grow where a condition on data holds, as exporters write EmbeddingBag, and what is computed of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import numpy_helper, parser

from sartor.errors import UnsupportedModelError
from tests.plugin.onnx_model.builders import run, weights
from tests.plugin.onnx_model.conftest import Prepare

# A list of the places of numbers that are no 2, in steps; the largest rows at these places, zeros if there is none.
_BAG = """<ir_version: 9, opset_import: ["" : 18]> agraph (int64[3] x) => (float[1,4] y, int64 count)
<int64[0] none = {}, int64[1] flat = {-1}, int64 padding = {2}, int64[1] axis = {0},
 int64 nought = {0}, int64 one = {1}, int64 three = {3}, bool begin = {1}> {
    last, places = Loop (three, begin, nought, none) <body = step (int64 i, bool go, int64 j, int64[n] list)
        => (bool go_on, int64 next, int64[m] longer) {
        value = Gather (x, j)
        is_padding = Equal (value, padding)
        longer = If (is_padding) <
            then_branch = same () => (int64[n] kept) { kept = Identity (list) },
            else_branch = more () => (int64[m] joined) {
                row = Reshape (j, flat) joined = Concat <axis = 0> (list, row)
            }
        >
        next = Add (j, one)
        go_on = Identity (go)
    }>
    count = Size (places)
    is_empty = Equal (count, nought)
    y = If (is_empty) <
        then_branch = without () => (float[1,4] zeros) { zeros = Constant <value = float[1,4] {0, 0, 0, 0}> () },
        else_branch = with () => (float[1,4] most) {
            rows = Gather (table, places) most = ReduceMax <keepdims = 1> (rows, axis)
        }
    >
}"""


def test_places_are_picked_and_the_empty_list_has_a_branch_of_its_own(prepare_quickly: Prepare) -> None:
    built = parser.parse_model(_BAG)
    built.graph.initializer.append(numpy_helper.from_array(weights(3, 4) - 3, "table"))
    prepared = prepare_quickly(built).model
    assert all(node.op_type not in ("If", "Loop") for node in prepared.graph.node)
    for values in itertools.product((1, 2), repeat=3):
        feeds = {"x": np.array(values)}
        found, right = run(prepared, feeds), run(built, feeds)
        np.testing.assert_array_equal(found["y"], right["y"])
        assert found["count"] == right["count"]


@pytest.mark.parametrize("first", [(), (7,)])
def test_rows_behind_a_list_that_is_there_already(first: tuple[int, ...], prepare_quickly: Prepare) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> agraph (float[2] x, bool a, bool b) => (float total)
    <float[{len(first)}] list = {{{", ".join(map(str, first))}}}, int64[1] axis = {{0}}> {{
        one = If (a) <
            then_branch = more () => (float[n] joined) {{ joined = Concat <axis = 0> (list, x) }},
            else_branch = same () => (float[n] kept) {{ kept = Identity (list) }}
        >
        two = If (b) <
            then_branch = same2 () => (float[m] kept2) {{ kept2 = Identity (one) }},
            else_branch = more2 () => (float[m] joined2) {{ z = Neg (x) joined2 = Concat <axis = 0> (one, z, x) }}
        >
        total = ReduceSum <keepdims = 0> (two, axis)
    }}"""
    built = parser.parse_model(text)
    prepared = prepare_quickly(built).model
    for a, b in itertools.product((True, False), repeat=2):
        feeds = {"x": np.array([2.0, 5.0], np.float32), "a": np.array(a), "b": np.array(b)}
        np.testing.assert_allclose(run(prepared, feeds)["total"], run(built, feeds)["total"], rtol=1e-6)


def test_branches_within_branches_are_selected_too(prepare_quickly: Prepare) -> None:
    """The mean of some rows, their sum in a condition that is known, and zeros where there is none (EmbeddingBag)."""
    text = """<ir_version: 9, opset_import: ["" : 18]>
    agraph (float[5,3] x, int64[1] first, int64[1] end) => (float[1,3] y)
    <int64[1] axis = {0}, int64[1] two = {2}, bool is_last = {0}> {
        is_empty = Equal (first, end)
        y = If (is_empty) <
            then_branch = none () => (float[1,3] z) { z = Constant <value = float[1,3] {0, 0, 0}> () },
            else_branch = some () => (float[1,3] r) {
                rows = Slice (x, first, end)
                r = If (is_last) <
                    then_branch = a () => (float[1,3] sum) { sum = ReduceSum (rows, axis) },
                    else_branch = b () => (float[1,3] q) {
                        mean = ReduceMean (rows, axis)
                        is_late = Greater (first, two)
                        q = If (is_late) <
                            then_branch = c () => (float[1,3] n) { n = Neg (mean) },
                            else_branch = d () => (float[1,3] m) { m = Identity (mean) }
                        >
                    }
                >
            }
        >
    }"""
    built = parser.parse_model(text)
    prepared = prepare_quickly(built).model
    assert all(node.op_type != "If" for node in prepared.graph.node)
    for first, end in ((0, 0), (0, 5), (1, 3), (3, 5), (4, 4)):
        feeds = {"x": weights(5, 3), "first": np.array([first]), "end": np.array([end])}
        np.testing.assert_allclose(run(prepared, feeds)["y"], run(built, feeds)["y"], rtol=1e-6)


def test_a_branch_that_may_fail_stays_one(prepare_quickly: Prepare) -> None:
    """It divides integers only where none of them is zero."""
    text = """<ir_version: 9, opset_import: ["" : 18]> agraph (int64[4] x, bool a) => (int64 y) <int64[1] axis = {0}> {
        some = NonZero (x)
        y = If (a) <
            then_branch = one () => (int64 s) { q = Div (x, x) n = Size (some) t = ReduceSum <keepdims = 0> (q, axis)
                s = Add (t, n) },
            else_branch = two () => (int64 s2) { s2 = ReduceMax <keepdims = 0> (x, axis) }
        >
    }"""
    with pytest.raises(UnsupportedModelError, match=r"\(If\) is not supported: the size of its operand 'some' depends"):
        prepare_quickly(parser.parse_model(text))


def test_a_branch_that_reads_more_than_single_numbers_stays_one(prepare_quickly: Prepare) -> None:
    """It reads a row of a table only where there is such a row."""
    text = """<ir_version: 9, opset_import: ["" : 18]> agraph (int64 i, bool a) => (float y) <float nought = {0}> {
        y = If (a) <
            then_branch = read () => (float row) { row = Gather (table, i) },
            else_branch = none () => (float zero) { zero = Identity (nought) }
        >
    }"""
    built = parser.parse_model(text)
    built.graph.initializer.append(numpy_helper.from_array(weights(3), "table"))
    prepared = prepare_quickly(built).model
    assert [node.op_type for node in prepared.graph.node].count("If") == 1
    feeds = {"i": np.array(7), "a": np.array(False)}
    assert run(prepared, feeds)["y"] == 0


def _cut(name: str, axis: int, size: int) -> str:
    return f"""{name} = {name}_g () => (float[r,c] {name}_r) {{
        {name}_f = Constant <value = int64[1] {{0}}> () {name}_t = Constant <value = int64[1] {{{size}}}> ()
        {name}_a = Constant <value = int64[1] {{{axis}}}> () {name}_r = Slice (x, {name}_f, {name}_t, {name}_a) }}"""


@pytest.mark.parametrize(("axis", "sizes"), [(0, (4, 2)), (0, (1, 3)), (1, (2, 3)), (0, (0, 4))])
@pytest.mark.parametrize("declared", ["r,c", "4,3"])
def test_branches_of_different_sizes_count_what_is_chosen(
    axis: int, sizes: tuple[int, int], declared: str, prepare_quickly: Prepare
) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 18]> agraph (float[4,3] x) => (float[{declared}] y, float[k] total)
    <float nought = {{0}}, int64[1] last = {{1}}> {{
        sum = ReduceSum <keepdims = 0> (x) is_large = Greater (sum, nought)
        y = If (is_large) < {_cut("then_branch", axis, sizes[0])}, {_cut("else_branch", axis, sizes[1])} >
        total = ReduceSum <keepdims = 0> (y, last)
    }}"""
    built = parser.parse_model(text)
    prepared = prepare_quickly(built)
    bound = {info.name: info.shape for info in prepared.outputs}
    assert bound["y"][axis] == max(sizes)
    for sign in (1, -1):
        feeds = {"x": sign * np.abs(weights(4, 3))}
        found, right = run(prepared.model, feeds), run(built, feeds)
        count = int(found[f"sartor.count:{axis}:y"])
        assert count == right["y"].shape[axis]
        np.testing.assert_array_equal(found["y"].take(range(count), axis), right["y"])
        np.testing.assert_allclose(found["total"][: len(right["total"])], right["total"], rtol=1e-6)


def test_results_of_one_conditional_have_one_count(prepare_quickly: Prepare) -> None:
    """What is added to each other has to be of one size."""

    def branch(name: str, size: int) -> str:
        return f"""{name} = {name}_g () => (float[r,3] {name}_r, float[r,3] {name}_d, float[w,3] {name}_w) {{
            {name}_f = Constant <value = int64[1] {{0}}> () {name}_t = Constant <value = int64[1] {{{size}}}> ()
            {name}_r = Slice (x, {name}_f, {name}_t) {name}_d = Add ({name}_r, {name}_r)
            {name}_w = Concat <axis = 0> ({name}_r, {name}_d) }}"""

    text = f"""<ir_version: 9, opset_import: ["" : 18]> agraph (float[4,3] x) => (float[r,3] y, float[w,3] wide)
    <float nought = {{0}}> {{
        sum = ReduceSum <keepdims = 0> (x) is_large = Greater (sum, nought)
        once, twice, wide = If (is_large) < {branch("then_branch", 4)}, {branch("else_branch", 1)} >
        y = Mul (once, twice)
    }}"""
    built = parser.parse_model(text)
    prepared = prepare_quickly(built)
    for sign in (1, -1):
        feeds = {"x": sign * np.abs(weights(4, 3))}
        found, right = run(prepared.model, feeds), run(built, feeds)
        for name in ("y", "wide"):
            count = int(found[f"sartor.count:0:{name}"])
            np.testing.assert_array_equal(found[name][:count], right[name])
