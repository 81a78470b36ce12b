"""Sizes that are known only when a network runs: what follows from symbols, and how that is found from two values."""

from __future__ import annotations

import pytest

from sartor.codegen.ir.layer import TensorType
from sartor.codegen.ir.size_text import SizeText
from sartor.codegen.ir.sizes.dims import Dim, Extent, Symbol, sum_of, symbols_in
from sartor.codegen.ir.sizes.fit import Fit, SeveralFitError, small_sizes, twin_sizes

BATCH, TOKENS = Symbol("batch", 1, 8), Symbol("tokens", 1, 512)
B, T = Extent((BATCH,)), Extent((TOKENS,))
FIT = Fit.of((BATCH, TOKENS))


@pytest.mark.parametrize(
    "dim",
    [
        384,
        T,
        Extent((BATCH, TOKENS)),
        Extent((BATCH, TOKENS), 12),
        Extent((TOKENS, TOKENS), 3),
        Extent((TOKENS,), 1, 1),
        Extent((TOKENS,), 2, -2),
    ],
)
def test_the_size_that_two_values_follow_from_is_found(dim: Dim) -> None:
    most = {BATCH.name: BATCH.most, TOKENS.name: TOKENS.most}
    one, other = (dim if isinstance(dim, int) else dim.at(sizes) for sizes in (most, FIT.twin_sizes))
    assert FIT.dim(one, other) == dim
    assert isinstance(dim, int) or dim.most == one


def test_a_size_that_no_formula_gives_is_refused() -> None:
    with pytest.raises(ValueError, match="a size that is 500 or 499"):
        Fit((TOKENS,), (400,)).dim(500, 499)


def test_a_size_that_may_be_negative_is_refused_and_an_index_that_may_be_is_not() -> None:
    less = Extent((TOKENS,)).plus(-3)
    values = less.most, less.at(FIT.twin_sizes)
    with pytest.raises(ValueError, match="it has a size of tokens - 3, which is -2 where tokens is 1"):
        FIT.dim(*values)
    assert FIT.number(*values) == less


def test_a_product_of_three_sizes_is_found_as_of_a_batch_of_images() -> None:
    symbols = Symbol("batch", 1, 8), Symbol("height", 32, 640, 32), Symbol("width", 32, 640, 32)
    whole, fit = Extent(symbols, 3), Fit.of(symbols)
    assert fit.dim(whole.most, whole.at(fit.twin_sizes)) == whole


def test_a_sum_that_is_never_below_zero_is_taken_for_one_that_may_be() -> None:
    symbols = Symbol("n5", 3, 21), Symbol("n10", 5, 31)
    assert Fit(symbols, (19, 23)).dim(30, 22) == Extent(symbols[1:]).plus(-1)


def test_a_last_index_may_be_that_of_a_product() -> None:
    last = Extent((BATCH, TOKENS)).plus(-1)
    values = last.most, last.at(FIT.twin_sizes)
    assert FIT.number(*values) == last
    with pytest.raises(ValueError, match="no product"):
        FIT.dim(*values)


def test_sizes_of_a_second_import_are_other_primes_and_none_is_one() -> None:
    symbols = [Symbol("a", 1, 512), Symbol("b", 1, 512), Symbol("c", 1, 2), Symbol("d", 1, 3), Symbol("e", 32, 640, 32)]
    assert twin_sizes(symbols) == [509, 503, 5, 7, 19 * 32]


def test_sizes_of_a_third_import_are_small_primes_that_tell_products_apart() -> None:
    symbols = [Symbol("a", 1, 512), Symbol("b", 1, 512), Symbol("c", 6, 64), Symbol("w", 32, 640, 32)]
    assert small_sizes(symbols) == [3, 5, 7, 3 * 32]
    # 3/6 of one is 5/10 of the other.
    assert small_sizes([Symbol("a", 1, 6), Symbol("b", 1, 10)]) == [3, 7]


def test_sizes_that_several_formulas_give_are_refused() -> None:
    halves = Fit((Symbol("a", 1, 6), Symbol("b", 1, 10)), (3, 5))
    with pytest.raises(SeveralFitError, match=r"a size that is 30 or 15 may be 5 \* a or 3 \* b"):
        halves.dim(30, 15)
    assert halves.dim(7, 7) == 7


def test_a_tensor_of_open_sizes_has_a_type_for_each_size() -> None:
    opened = TensorType.of_dims([B, 3, Extent((BATCH, TOKENS), 2)], "f32")
    assert opened.at({"batch": 2, "tokens": 5}) == TensorType((2, 3, 20), "f32")
    assert TensorType((4, 3), "f32").at({}) == TensorType((4, 3), "f32")


def test_symbols_are_listed_once() -> None:
    assert symbols_in([3, T, B, T]) == (TOKENS, BATCH)


WIDTH, SIDE = Symbol("width", 5, 640), Symbol("side", 32, 640, 32)
W, S = Extent((WIDTH,)), Extent((SIDE,))


def test_formulas_that_are_equal_for_all_sizes_are_the_same() -> None:
    halves = W.plus(1).over(2)
    assert [halves.at({"width": number}) for number in (5, 6, 7)] == [3, 3, 4]
    assert halves.plus(1).over(2) == W.plus(3).over(4) != W.over(4)
    assert S.plus(1).over(2) == S.plus(0).over(2) == Extent((SIDE,), 1, 0, 2)
    assert S.over(2).times(S.over(8)) == Extent((SIDE, SIDE), 1, 0, 16)
    assert Extent.of((SIDE,), 4, 8, 4) == S.plus(2)
    assert (S.over(4).is_product, W.over(4).is_product, S.over(64).is_product) == (True, False, False)
    assert str(W.plus(-3).over(4)) == "(width - 3) / 4"


def test_what_is_known_tells_which_formula_a_size_follows() -> None:
    fit = Fit.of((WIDTH, SIDE)).knowing([W.plus(3).over(4), S.over(8), 7])
    values = {each: (each.most, each.at(fit.twin_sizes)) for each in (W.plus(3).over(4), S.over(8), S.over(8).times(S))}
    assert {each: fit.dim(*pair) for each, pair in values.items()} == {value: value for value in values}
    one, other = values[W.plus(3).over(4)]
    assert fit.dim(one + 2, other + 2) == W.plus(11).over(4)
    assert fit.dim(3 * values[S.over(8)][0], 3 * values[S.over(8)][1]) == Extent((SIDE,), 3, 0, 8)
    with pytest.raises(ValueError, match="no product of them"):
        Fit.of((WIDTH, SIDE)).dim(one, other)


def test_elements_are_computed_from_sizes() -> None:
    text = SizeText({WIDTH: "%w", SIDE: "%s"})
    assert text.elements([1, W.over(2), 3, S]) == "%size4"
    assert text.lines == [
        "%size0 = arith.constant 2 : index",
        "%size1 = arith.divui %w, %size0 : index",
        "%size2 = arith.muli %size1, %s : index",
        "%size3 = arith.constant 3 : index",
        "%size4 = arith.muli %size2, %size3 : index",
    ]
    assert SizeText({}).elements([2, 3]) == "%size0"


def test_a_symbol_allows_what_is_in_its_range() -> None:
    width = Symbol("width", 32, 96, 32)
    assert [size for size in range(129) if width.allows(size)] == [32, 64, 96]
    assert str(width) == "width=32..96 by 32"


@pytest.mark.parametrize(
    ("symbol", "near", "odd"),
    [
        (Symbol("any", 1, 2048), 256, 257),
        (Symbol("steps", 8, 2048, 8), 256, 264),
        (Symbol("few", 32, 64, 32), 8, 32),
        (Symbol("end", 32, 128, 32), 127, 96),
        (Symbol("even", 32, 64, 32), 64, 64),
    ],
)
def test_an_odd_number_of_multiples_near_a_size_is_allowed(symbol: Symbol, near: int, odd: int) -> None:
    assert symbol.odd_near(near) == odd
    assert symbol.allows(odd)


def test_types_show_open_sizes_as_mlir_does_and_have_the_largest() -> None:
    tensor = TensorType.of_dims([B, T, 384], "f32")
    assert (str(tensor), tensor.shape, tensor.bytes) == ("tensor<?x?x384xf32>", (8, 512, 384), 8 * 512 * 384 * 4)
    assert TensorType.of_dims([2, 3], "f32") == TensorType((2, 3), "f32")
    assert tensor != TensorType((8, 512, 384), "f32")


def test_sizes_are_computed_once_from_the_values_of_symbols() -> None:
    text = SizeText({BATCH: "%b", TOKENS: "%t"})
    assert text.typed(TensorType.of_dims([Extent((BATCH, TOKENS), 3, 1), T], "f32")) == "tensor<?x?xf32>{%size4, %t}"
    before = list(text.lines)
    text.name(Extent((BATCH, TOKENS), 3, 1))
    assert (
        text.lines
        == before
        == [
            "%size0 = arith.muli %b, %t : index",
            "%size1 = arith.constant 3 : index",
            "%size2 = arith.muli %size0, %size1 : index",
            "%size3 = arith.constant 1 : index",
            "%size4 = arith.addi %size2, %size3 : index",
        ]
    )


@pytest.mark.parametrize(
    ("least", "most", "stride", "padding", "factor", "offset"),
    [(1, 299, 2, 1, 2, 0), (1, 299, 2, 1, 2, -1), (8, 512, 3, 0, 3, 0), (3, 131, 4, 3, 2, 1)],
)
def test_what_follows_from_a_rounded_size_is_not_guessed(
    least: int, most: int, stride: int, padding: int, factor: int, offset: int
) -> None:
    """Of sizes behind a stride, multiples may differ from a size by the same in all imports."""
    width = Symbol("width", least, most)
    rounded = Extent.of_symbol(width).plus(padding).over(stride)
    for fit in (Fit.of([width]), Fit.of_small([width])):
        sizes = [factor * each + offset for each in (rounded.most, rounded.at(fit.twin_sizes))]
        for known in ([rounded], [Extent.of_symbol(width).plus(2), rounded]):
            with pytest.raises(ValueError, match="is no product of them"):
                fit.knowing(known).dim(sizes[0], sizes[1])


def test_what_a_kernel_counts_has_no_guessed_offset() -> None:
    fit = Fit.of([TOKENS])
    assert fit.dim(513, 510) == T.plus(1)
    assert (fit.count(1536, 1527), fit.count(7, 7)) == (Extent((TOKENS,), 3), 7)
    assert fit.knowing([T.plus(1)]).count(513, 510) == T.plus(1)
    with pytest.raises(ValueError, match="is no product of them"):
        fit.count(513, 510)


PAST, NEW = Symbol("past", 1, 500), Symbol("new", 2, 512)
P, N = Extent((PAST,)), Extent((NEW,))


def values(fit: Fit, dim: Extent) -> tuple[int, int]:
    return dim.most, dim.at(fit.twin_sizes)


@pytest.mark.parametrize(
    "dim", [sum_of([P, N]), sum_of([P, N]).plus(-1), sum_of([P, N, T]), sum_of([P.plus(1), N])], ids=str
)
def test_a_sum_of_sizes_is_found(dim: Extent) -> None:
    fit = Fit.of((PAST, NEW, TOKENS)).knowing([dim])
    assert fit.dim(*values(fit, dim)) == dim
    bare = Fit.of((PAST, NEW, TOKENS))
    if not dim.offset:
        assert bare.dim(*values(bare, dim)) == dim


def test_a_part_of_a_sum_is_found_where_the_sum_is_known() -> None:
    total = sum_of([P, N])
    fit = Fit.of((PAST, NEW)).knowing([total, N])
    rows = Extent.of((*total.symbols, NEW), 4)
    assert fit.dim(*values(fit, rows)) == rows
    assert fit.number(*values(fit, total.plus(-1))) == total.plus(-1)


def test_sums_with_the_same_terms_are_the_same() -> None:
    assert sum_of([P, N]) == sum_of([N, P])
    assert sum_of([sum_of([P, N]), T]) == sum_of([P, sum_of([T, N])])
    assert sum_of([P.plus(2), N]) == sum_of([P, N]).plus(2)
    assert sum_of([P, P, N]) == sum_of([Extent((PAST,), 2), N])
    assert sum_of([P, P]) == Extent((PAST,), 2)


def test_a_sum_has_the_sizes_and_the_symbols_of_its_terms() -> None:
    total = sum_of([P, N])
    assert (total.least, total.most, total.at({"past": 7, "new": 9})) == (3, 1012, 16)
    assert symbols_in([total]) == (NEW, PAST)
    assert total.shifted is None
    assert total.plus(3).summed == (NEW, PAST)
    assert str(total.plus(3)) == "new + past + 3"


def test_a_sum_is_computed_once_from_the_values_of_its_terms() -> None:
    text = SizeText({PAST: "%past", NEW: "%new"})
    total = sum_of([P, N])
    assert (text.name(total), text.name(total.plus(1))) == ("%size0", "%size2")
    assert text.lines == [
        "%size0 = arith.addi %new, %past : index",
        "%size1 = arith.constant 1 : index",
        "%size2 = arith.addi %size0, %size1 : index",
    ]


def test_rounded_sizes_are_no_terms_of_a_sum() -> None:
    half = T.plus(1).over(2)
    fit = Fit.of((TOKENS, PAST)).knowing([half, P])
    with pytest.raises(ValueError, match="is no product of them"):
        fit.dim(half.most + 500, values(fit, half)[1] + fit.twin_sizes["past"])


def test_a_token_that_is_joined_to_a_sequence_is_no_multiple_of_a_batch_with_an_offset() -> None:
    symbols = Symbol("batch", 1, 8), Symbol("length", 1, 67)
    assert Fit(symbols, (7, 61)).dim(68, 62) == Extent(symbols[1:]).plus(1)


def test_distant_sizes_have_other_parts() -> None:
    symbols = Symbol("frames", 100, 3000), Symbol("batch", 1, 8), Symbol("side", 32, 3200, 32)
    frames, batch, side = Fit.of_distant(symbols).twin
    assert (frames, batch, side) == (2971, 7, 73 * 32)
    assert -(-frames // 8) != 3000 // 8


def test_a_multiple_of_a_known_size_with_an_offset_is_no_multiple_of_another_with_one() -> None:
    batch, length = Symbol("batch", 1, 8), Symbol("length", 1, 67)
    more = Extent((length,)).plus(1)
    fit = Fit((batch, length), (7, 61)).knowing([Extent((batch,)), more])
    assert fit.dim(136, 124) == Extent((length,), 2, 2)
