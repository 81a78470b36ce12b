"""Which variants' code is written where nothing is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sartor.codegen.analysis.task_bounds import kind_and_sizes
from sartor.codegen.ir.machines.core import WIDE
from sartor.codegen.ir.machines.cuda import ARCHITECTURES
from sartor.codegen.ir.target import Target
from sartor.codegen.kernels.open_sizes.costs import OpenAttentionCost
from sartor.codegen.mlir.kernel_machine import core_of
from sartor.codegen.routine_registry import described
from sartor.config import CompileConfig
from sartor.costing.candidates import find_candidates
from sartor.frontend.imported_model import ImportedModel
from sartor.tuning.cost_tables.tables import tuned_cases
from sartor.tuning.search.cost_model import CostModel, Sample
from sartor.tuning.search.features import analytic_seconds
from sartor.tuning.search.shipped.foreseen import Foreseen
from sartor.tuning.search.shipped.left_out import left_out
from sartor.tuning.search.shipped.likeness import kin, kin_in, predicted_seconds, shipped_guide
from sartor.tuning.search.shipped.times import MOST_SLOWDOWN, shipped_samples

TARGET = Target.create("cpu", "x86-64-v4")
# Of 8 queries of 64 elements with 1,024 keys, which 4 of them share.
ATTENTION = (
    "fused batch=1 channels=512 columns=1 depth=2048 dilation=1 kernel_height=1 kernel_width=1 operands=4 "
    "operations=2097152 read=1054720 rows=1 stride=1 taps=1 weights=0 written=2048"
)
# 3x3, 256 to 256 channels, 14x14 pixels.
CONVOLUTION = (
    "convolution batch=1 channels=256 columns=14 depth=2304 dilation=1 kernel_height=3 kernel_width=3 operands=1 "
    "operations=231211008 read=200704 rows=14 stride=1 taps=9 weights=2359296 written=200704"
)

# 3x3, depthwise, 384 channels, 14x14 pixels.
WINDOW = (
    "depthwise batch=1 channels=384 columns=14 depth=9 dilation=1 kernel_height=3 kernel_width=3 operands=1 "
    "operations=1354752 read=301056 rows=14 stride=1 taps=9 weights=13824 written=301056"
)

# A row by 4096 x 4096 weights.
PRODUCT = (
    "contraction batch=1 channels=4096 columns=1 depth=4096 dilation=1 kernel_height=1 kernel_width=1 operands=1 "
    "operations=33554432 read=16384 rows=1 stride=1 taps=1 weights=67108864 written=16384"
)


@pytest.mark.parametrize("model", [None, shipped_guide("x86-64-v4", 1)], ids=["analytic", "learned"])
def test_of_each_routine_the_fastest_by_prediction_is_left(
    model: CostModel | None, imported_of: Callable[[str], ImportedModel]
) -> None:
    imported, policy = imported_of("residual"), CompileConfig(target=TARGET, threads=1).planning
    chosen = Foreseen(model, core_of(TARGET), kin_in(shipped_samples("x86-64-v4", 1)))
    whole = find_candidates(imported, policy, everything=False)
    narrow = find_candidates(imported, policy, everything=False, narrow=chosen)
    fewer = 0
    for case in tuned_cases(imported.graph, whole.variants):
        kept = {each.routine: each.descriptor for each in narrow.variants[case.key]}
        assert narrow.variants[case.key][0].descriptor == case.variants[0].descriptor
        fewer += len(case.variants) - len(kept)
        if model is None:
            continue
        for routine, name in kept.items():
            own = [variant.described for variant in case.variants if variant.routine == routine]
            seconds = dict(zip((each.descriptor for each in own), model.seconds(case.facts, own), strict=True))
            assert name not in seconds or seconds[name] <= 1.001 * min(seconds.values())
    assert fewer > len(whole.variants)


def test_a_model_is_trained_once() -> None:
    assert shipped_guide("x86-64-v4", 1) is shipped_guide("x86-64-v4", 1)
    assert shipped_guide("no such machine", 1) is None


def test_a_kernel_of_several_layers_has_its_own_models_time_if_no_like_was_seen() -> None:
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    assert guide is not None
    names = "stock", "open_attention{groups=1,rows=4,vectors=1}"
    both = stock, kernel = [described(f"cpu:f32/fused.{name}") for name in names]
    learned = guide.seconds(ATTENTION, both)
    own = analytic_seconds(ATTENTION, kernel)
    assert own != learned[1]
    assert predicted_seconds(ATTENTION, both, guide, seen, WIDE) == [learned[0], own]
    assert predicted_seconds(ATTENTION, both, guide, seen | {kin(kernel)}, WIDE) == learned
    assert predicted_seconds(ATTENTION, both, None, seen, WIDE) == [analytic_seconds(ATTENTION, stock), own]


def test_no_kernel_takes_less_than_the_least_task() -> None:
    """Of products of a few numbers none that was seen tells of a pace, and others are told apart by their own model."""
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    tile = "{columns=1,lines=1,panel_groups=1,row_groups=1,unroll=1,vectors="
    names = (f"f32/matmul.product{tile}1}}", f"i8/matmul.dots{tile}1}}", f"i8/matmul.dots{tile}4}}")
    variants = [described(f"cpu:{name}") for name in names]
    assert kin(variants[0]) in seen
    assert kin(variants[1]) not in seen
    known, *others = predicted_seconds(_product(1, 4, 12), variants, guide, seen, WIDE)
    least, *narrow = [analytic_seconds(_product(1, 4, 12), each) for each in variants]
    assert others == [known + each for each in narrow]
    assert least < known
    attention = [described("cpu:f32/fused.open_attention{groups=1,rows=1,vectors=1}")]
    tiny = (
        "fused batch=1 channels=4 columns=1 depth=4 dilation=1 kernel_height=1 kernel_width=1 operands=3 operations=32 "
        "read=80 rows=1 stride=1 taps=1 weights=0 written=16"
    )
    assert predicted_seconds(tiny, attention, guide, seen, WIDE) == [known]


def test_code_by_iree_for_any_size_takes_no_less_than_by_its_own_model() -> None:
    """It was 7.4 of 9.7 ms of a recogniser, in which it was predicted to take less than the kernel."""
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    facts = PRODUCT.replace("batch=1", "batch=640").replace("4096", "96").replace("read=16384", "read=245760")
    both = stock, kernel = [
        described(f"cpu:f32/matmul.{name}")
        for name in ("stock", "product{columns=7,lines=1,panel_groups=2,row_groups=1,unroll=2,vectors=3}")
    ]
    known, open_ones = (predicted_seconds(facts, both, guide, seen, WIDE, is_open=each) for each in (False, True))
    assert open_ones == [max(known[0], analytic_seconds(facts, stock)), known[1]]
    assert open_ones[0] > open_ones[1]
    assert kin(kernel) in seen


def test_instructions_whose_like_was_not_seen_are_as_much_faster_as_their_models_say() -> None:
    guide, seen = shipped_guide("x86-64-v3", 1), kin_in(shipped_samples("x86-64-v3", 1))
    core = core_of(Target.create("cpu", "x86-64-v3"))
    assert guide is not None
    single, *grouped = [
        described(f"cpu:{name}")
        for name in (
            "f32/conv2d.direct{columns=4,lines=1,panel_groups=4,row_groups=1,unroll=1,vectors=3}",
            "i8/conv2d.wide_word_pairs{band=5,columns=4,panel_groups=1,row_groups=3,unroll=2,vectors=2}",
            "i8/conv2d.winograd_word_pairs{block=50,columns=5,groups=1,height=2,panels=16,unroll=1,vectors=2,width=2}",
        )
    ]
    direct, pairs, winograd = predicted_seconds(CONVOLUTION, [single, *grouped], guide, seen, core)
    assert [direct] == guide.seconds(CONVOLUTION, [single])
    # Measured: 1.65 times as fast as f32, and 1.85 times as fast as that.
    assert 1.3 < direct / pairs < 2
    assert 1.4 < pairs / winograd < 2.25


def test_windows_whose_pixels_are_converted_once_take_a_part_of_the_time_of_others() -> None:
    guide, seen = shipped_guide("x86-64-v3", 1), kin_in(shipped_samples("x86-64-v3", 1))
    core, tile = core_of(Target.create("cpu", "x86-64-v3")), "{columns=3,lines=1,panel_groups=4,row_groups=1,vectors=2}"
    both = [described(f"cpu:i8/depthwise.{name}{tile}") for name in ("window", "converted_window")]
    for model in (guide, None):
        often, once = predicted_seconds(WINDOW, both, model, seen, core)
        # Measured: 0.65 to 0.8.
        assert 0.6 < once / often < 0.9


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_filters_of_16_bits_are_widened_for_more_time_and_read_in_less(dtype: str) -> None:
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    core, tiles = core_of(TARGET), "{columns=8,lines=1,panel_groups=1,row_groups=1,unroll=1,vectors=3}"
    row = "{columns=1,lines=1,panel_groups=1,row_groups=1,unroll=2,vectors=4}"
    for facts, name, least, most in (
        (CONVOLUTION, f"conv2d.direct{tiles}", 1.0, 1.3),
        (PRODUCT, f"matmul.product{row}", 0.45, 0.7),
    ):
        both = [described(f"cpu:f32/{each}") for each in (name, name.replace("{", f"_by_{dtype}{{"))]
        assert kin(both[0]) in seen
        assert kin(both[1]) not in seen
        for model in (guide, None):
            wide, narrow = predicted_seconds(facts, both, model, seen, core)
            assert least < narrow / wide < most


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_filters_of_16_bits_save_nothing_where_reading_them_is_hidden(dtype: str) -> None:
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    # Tiles whose filters the analytic model takes to be read for most of the time.
    tiles = "{columns=11,lines=1,panel_groups=4,row_groups=1,unroll=2,vectors=2}"
    product = (
        "contraction batch=1 channels=384 columns=128 depth=384 dilation=1 kernel_height=1 kernel_width=1 operands=1 "
        "operations=37748736 read=196608 rows=1 stride=1 taps=1 weights=589824 written=196608"
    )
    both = [described(f"cpu:f32/matmul.product{each}{tiles}") for each in ("", f"_by_{dtype}")]
    wide, narrow = predicted_seconds(product, both, guide, seen, core_of(TARGET))
    assert 1.0 < narrow / wide < 1.1


# Operations for each byte of a weight, by which reading it takes a small part of the time.
_MANY_ROWS = 48


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_filters_of_16_bits_are_told_by_wide_ones_in_the_same_tiles(level: str) -> None:
    """By their own model those in other tiles than the fastest kernel's won 18 products of an encoder, which took 4%
    longer so."""
    samples, core = shipped_samples(level, 1), core_of(Target.create("cpu", level))
    guide, seen = shipped_guide(level, 1), kin_in(samples)
    tiles: dict[str, list[str]] = {}
    for sample in samples:
        name = sample.variant.descriptor
        _, sizes = kind_and_sizes(sample.facts)
        if ".product{" in name and sizes["operands"] < 3 and sizes["operations"] >= _MANY_ROWS * sizes["weights"] > 0:
            tiles.setdefault(sample.facts, []).append(name)
    assert len(tiles) >= 3
    for facts, names in tiles.items():
        wide = [described(name) for name in names]
        seconds = predicted_seconds(facts, wide, guide, seen, core)
        fastest = wide[seconds.index(min(seconds))]
        for name in names:
            narrow = described(name.replace(".product", ".product_by_f16"))
            known, unseen = predicted_seconds(facts, [fastest, narrow], guide, seen, core)
            assert known == min(seconds)
            assert unseen > known


def _product(rows: int, depth: int, channels: int) -> str:
    """Facts of a product of rows by a weight."""
    return (
        f"contraction batch=1 channels={channels} columns={rows} depth={depth} dilation=1 kernel_height=1 "
        f"kernel_width=1 operands=1 operations={2 * rows * depth * channels} read={4 * rows * depth} rows=1 stride=1 "
        f"taps=1 weights={4 * depth * channels} written={4 * rows * channels}"
    )


def _by_codes(rows: int) -> str:
    """Facts of a product of rows by 896 x 4864 codes of 4 bits, in blocks of 32 with a scale of 4 bytes."""
    return (
        f"contraction batch=1 channels=4864 columns={rows} depth=896 dilation=1 kernel_height=1 kernel_width=1 "
        f"operands=1 operations={2 * rows * 896 * 4864} read={4 * rows * 896} rows=1 stride=1 taps=1 weights=2723840 "
        f"written={4 * rows * 4864}"
    )


@pytest.mark.parametrize("level", ["x86-64-v4", "x86-64-v3"])
def test_products_by_codes_are_predicted_in_the_order_that_was_measured(level: str) -> None:
    """Times on a Zen 4, one thread, µs: 94 and 148 of one row, and of 128 rows 7,981, 10,234, 18,627 and 24,441."""
    guide, seen = shipped_guide(level, 1), kin_in(shipped_samples(level, 1))
    assert guide is not None
    core, row = core_of(Target.create("cpu", level)), "{columns=1,lines=1,panel_groups=1,row_groups=1,unroll=1,vectors="
    tile = row.replace("columns=1", "columns=5")
    for rows, names in (
        (1, [f"i8/matmul.block_dots{row}8}}", f"f32/matmul.block_product{row}8}}"]),
        (
            128,
            [
                f"i8/matmul.block_dots{tile}4}}",
                f"f32/matmul.block_words{tile}4}}",
                f"f32/matmul.block_panels{tile}4}}",
                f"f32/matmul.block_product{tile}4}}",
            ],
        ),
    ):
        variants = [described(f"cpu:{name}") for name in (*names, "f32/matmul.stock")]
        assert all(variant.traits.reads_codes for variant in variants[:-1])
        for model in (guide, None):
            seconds = predicted_seconds(_by_codes(rows), variants, model, seen, core)
            assert seconds == sorted(seconds)
            # Stock code writes the weight as floats first.
            assert seconds[-1] > 1.5 * seconds[-2]
    # A weight that is stored in codes is read in their bytes, whatever rows are rounded to.
    dots, product = (
        analytic_seconds(_by_codes(1), described(f"cpu:{name}"), core)
        for name in (f"i8/matmul.block_dots{row}8}}", f"f32/matmul.block_product{row}8}}")
    )
    assert 2723840 / core.bytes_per_cycle / core.hertz < dots < product


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_row_by_codes_is_predicted_to_take_less_than_decoding_them_on_a_gpu(architecture: str) -> None:
    """Stock code writes the weight as floats and reads these: 17 MB each, beside 2.7 MB of codes."""
    core, sizes = core_of(Target.create("cuda", architecture)), "columns=1,lines=1,row_groups=1,unroll=1"
    names = (f"matmul.block_product{{{sizes},panel_groups=152,vectors=1}}", "matmul.stock")
    variants = [described(f"cuda:f32/{name}") for name in names]
    kernel, stock = predicted_seconds(_by_codes(1), variants, None, frozenset(), core)
    assert kernel < stock
    assert stock > 2 * 4 * 896 * 4864 / core.bytes_per_cycle / core.hertz


def test_attention_costs_what_its_loops_do() -> None:
    def cycles(rows: int, vectors: int, operations: int = 1 << 21) -> float:
        return OpenAttentionCost().cycles({"operations": operations}, {"rows": rows, "vectors": vectors})

    # Multiply-adds at the peak, two vectors a cycle, and what loads, exponentials and latencies add.
    least = (1 << 21) / WIDE.operations_per_cycle
    assert all(least < cycles(rows, vectors) < 8 * least for rows, vectors in ((1, 1), (4, 1), (4, 4), (6, 2), (8, 2)))
    assert cycles(4, 4, 1 << 22) == 2 * cycles(4, 4)
    # Keys and values are read once for all queries of a tile, whose sums have to fit the registers.
    assert cycles(1, 1) > cycles(2, 1) > cycles(4, 1) > cycles(6, 2) < cycles(8, 2)


@pytest.mark.parametrize("model", [None, shipped_guide("x86-64-v4", 1)], ids=["analytic", "learned"])
def test_code_by_iree_starts_each_step_of_a_loop(model: CostModel | None) -> None:
    """Of a GRU of 16 units; of 33 steps by IREE's code each takes two dispatches, by the kernel all take one."""

    def seconds(steps: int) -> list[float]:
        facts = (
            f"recurrence batch={steps} channels=16 columns=1 depth=1 dilation=1 kernel_height=1 kernel_width=1 "
            f"operands=2 operations=0 read={192 * steps + 64} rows=1 stride=1 taps=1 weights=3264 written={64 * steps}"
        )
        return predicted_seconds(facts, variants, model, kin_in(shipped_samples("x86-64-v4", 1)), WIDE)

    names = ("stock", "recurrent{groups=1,rows=1,unroll=2,vectors=1}")
    variants = [described(f"cpu:f32/recurrence.{name}") for name in names]
    start = WIDE.dispatch_cycles / WIDE.hertz
    for steps in (1, 2, 33):
        stock, kernel = seconds(steps)
        assert stock > (2 * steps - 1) * start
        assert kernel < stock


def _convolution(columns: int, rows: int, channels: int, depth: int, kernel: tuple[int, int], stride: int = 1) -> str:
    height, width = kernel
    read = 4 * rows * columns * stride * depth // (height * width)
    return (
        f"convolution batch=1 channels={channels} columns={columns} depth={depth} dilation=1 kernel_height={height} "
        f"kernel_width={width} operands=1 operations={2 * rows * columns * channels * depth} read={read} rows={rows} "
        f"stride={stride} taps={height * width} weights={4 * channels * depth} written={4 * rows * columns * channels}"
    )


@pytest.mark.parametrize(
    ("facts", "measured"),
    [
        # A filter of 256 taps that halves a signal, 5x5 of 8 channels, and 7x3 of 32, each to a single channel.
        (
            _convolution(21922, 1, 1, 256, (1, 256), 2),
            {
                "single_planes{row_groups=1,vectors=4}": 178,
                "single_planes{row_groups=1,vectors=1}": 293,
                "nhwc": 2982,
                "stock": 3048,
            },
        ),
        (
            _convolution(264, 172, 1, 200, (5, 5)),
            {
                "single_planes{row_groups=1,vectors=4}": 183,
                "single{row_groups=1,vectors=1}": 240,
                "single_planes{row_groups=1,vectors=1}": 430,
                "stock": 2846,
            },
        ),
        (
            _convolution(88, 172, 1, 672, (7, 3)),
            {
                "single{row_groups=14,vectors=1}": 110,
                "single_planes{row_groups=1,vectors=4}": 259,
                "single_planes{row_groups=1,vectors=1}": 636,
                "stock": 3542,
            },
        ),
    ],
    ids=["signal", "5x5", "7x3"],
)
def test_kernels_of_a_single_channel_are_predicted_as_they_were_measured(
    facts: str, measured: dict[str, float]
) -> None:
    """Times on a Zen 5 with AVX-512, one thread, µs; the package holds none of such kernels or layers."""
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    variants = [described(f"cpu:f32/conv2d.{name}") for name in measured]
    seconds = predicted_seconds(facts, variants, guide, seen, core_of(TARGET))
    kernels = [found for found, each in zip(seconds, variants, strict=True) if each.traits.family == "single"]
    assert kernels == sorted(kernels)
    assert max(kernels) < min(seconds[len(kernels) :])
    for found, each in zip(kernels, measured.values(), strict=False):
        assert 1e6 * found / 2.2 < each < 1e6 * found


def test_images_of_8_bits_are_converted_where_single_numbers_are_multiplied() -> None:
    """Times on a Zen 5 with AVX-512, one thread, µs: 8x8 of one channel to 16, 20.2 in f32 and 34.5 in 8 bits."""
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    tile = "conv2d.direct{columns=20,lines=1,panel_groups=1,row_groups=14,unroll=2,vectors=1}"
    variants = [described(f"cpu:{dtype}/{tile}") for dtype in ("f32", "i8")]
    wide, narrow = predicted_seconds(_convolution(40, 49, 16, 64, (8, 8)), variants, guide, seen, core_of(TARGET))
    assert 1.4 < narrow / wide < 2


def test_signed_images_are_biased_for_the_instruction_that_takes_no_sign() -> None:
    """Times as above, µs: 6x6 of 16 channels to 12, 18.4 by VNNI in tiles of one vector and 35.8 in f32."""
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    tile = "{columns=20,lines=1,panel_groups=1,row_groups=14,unroll=1,vectors=1}"
    variants = [described(f"cpu:{name}{tile}") for name in ("f32/conv2d.direct", "i8/conv2d.dots")]
    wide, dots = predicted_seconds(_convolution(20, 24, 12, 576, (6, 6)), variants, guide, seen, core_of(TARGET))
    assert 1.4 < wide / dots < 2.6


@pytest.mark.parametrize(
    ("steps", "units", "weights", "measured"),
    [(100, 256, 788480, {"stock": 2130, "recurrent": 396}), (24, 256, 1050624, {"stock": 1100, "recurrent": 170})],
    ids=["gru", "lstm"],
)
def test_code_by_iree_reads_the_weights_in_each_step(
    steps: int, units: int, weights: int, measured: dict[str, float]
) -> None:
    """Times as above, µs, within networks: of the enhancer's GRU and of the text recogniser's LSTM."""
    facts = (
        f"recurrence batch={steps} channels={units} columns=1 depth=1 dilation=1 kernel_height=1 kernel_width=1 "
        f"operands=1 operations=0 read={4096 * steps} rows=1 stride=1 taps=1 weights={weights} "
        f"written={4 * units * steps}"
    )
    guide, seen = shipped_guide("x86-64-v4", 1), kin_in(shipped_samples("x86-64-v4", 1))
    names = ("stock", "recurrent{groups=1,rows=1,unroll=2,vectors=4}")
    variants = [described(f"cpu:f32/recurrence.{name}") for name in names]
    stock, kernel = predicted_seconds(facts, variants, guide, seen, WIDE)
    assert stock > 3 * kernel
    assert 0.5 < 1e6 * stock / measured["stock"] < 2
    assert 0.5 < 1e6 * kernel / measured["recurrent"] < 2


def test_what_times_leave_out_was_far_slower() -> None:
    kernel = described("cpu:f32/conv2d.direct{columns=20,lines=1,panel_groups=1,row_groups=1,unroll=1,vectors=1}")
    stock = described("cpu:f32/conv2d.stock")
    with_stock, without = _convolution(20, 24, 12, 576, (6, 6)), _convolution(40, 49, 16, 64, (8, 8))
    (found,) = left_out(
        [Sample(with_stock, kernel, 1e-5), Sample(with_stock, stock, 4e-5), Sample(without, kernel, 1e-5)]
    )
    assert (found.facts, found.variant) == (without, stock)
    assert found.seconds == pytest.approx(MOST_SLOWDOWN * 1e-5)
    assert left_out([Sample(without, replace(kernel, dtype="i8"), 1e-5)]) == []
