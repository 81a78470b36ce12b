"""The long check of all kernels: what it keeps, and that it goes on where it was interrupted."""

from __future__ import annotations

import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest.mock import Mock

import pytest

from benchmarks.record.circumstances import Circumstances
from benchmarks.record.computed import read_computed
from sartor.codegen.ir.layer import Layer
from tools.cuda import __main__ as command
from tools.cuda.assembler import kernel_check, record
from tools.cuda.assembler.ptx import Assembled, assembler, assembler_version, shared_bytes
from tools.cuda.assembler.record import Kernel, Record, key_of

GOOD = Kernel("good", Assembled("good", 96, 0, 0, 128), None)
MADE = Circumstances("0123456789", "2026-11-28", "python -m tools.cuda", "machine", (), 2, "Linux", 0.5, {})
BAD = Kernel("bad", Assembled("bad", 255, 8, 16, 128), "16 bytes spilled")


def test_a_record_is_read_again_unless_the_code_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cuda.json"
    Record.at(path).add("sm_80 one", [GOOD, BAD])
    found = Record.at(path)
    assert found.has("sm_80 one")
    assert found.summary("sm_80") == "2 kernels, at most 255 registers, 1 with spills, 1 faults"
    assert found.faults("") == ["bad: 16 bytes spilled"]
    assert found.faults("sm_90") == []
    monkeypatch.setattr(record, "_sources", lambda: "other")
    assert not Record.at(path).kernels


@pytest.fixture(autouse=True)
def _three_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [Mock(), Mock(), Mock()]
    for index, layer in enumerate(layers):
        layer.name = f"layer{index}"
    monkeypatch.setattr(command, "_layers", lambda name: iter(layers))


def test_the_check_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def check(layer: Layer, architecture: str, routine: str) -> list[Kernel]:
        asked.append(layer.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return [GOOD]

    monkeypatch.setattr(command, "check", check)
    given = ["--arch", "sm_86", "--model", "transformer", "-o", str(tmp_path / "cuda.json")]
    with pytest.raises(KeyboardInterrupt):
        command.main(given)
    assert command.main(given) == 0
    assert asked == ["layer0", "layer1", "layer1", "layer2"]
    assert "3 kernels, at most 96 registers" in capsys.readouterr().out


def test_no_layer_is_begun_after_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "check", lambda *_: [GOOD])
    given = ["--arch", "sm_86", "--model", "transformer", "-o", str(tmp_path / "cuda.json")]
    assert command.main([*given, "--seconds", "-1"]) == 75
    assert not Record.at(tmp_path / "cuda.json").kernels
    assert command.main(given) == 0
    # Nothing is left to begin.
    assert command.main([*given, "--seconds", "-1"]) == 0


@pytest.mark.parametrize("seconds", ["inf", "-1"])
def test_layers_are_checked_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: str) -> None:
    monkeypatch.setattr(command, "ProcessPoolExecutor", lambda jobs, _: ThreadPoolExecutor(jobs))
    both = Barrier(2)

    def check(layer: Layer, architecture: str, routine: str) -> list[Kernel]:
        if layer.name != "layer2":
            both.wait(10)
        return [GOOD]

    monkeypatch.setattr(command, "check", check)
    path = tmp_path / "cuda.json"
    given = ["--arch", "sm_86", "--model", "transformer", "--jobs", "2", "-o", str(path), "--seconds", seconds]
    assert command.main(given) == (75 if seconds == "-1" else 0)
    assert len(Record.at(path).kernels) == (0 if seconds == "-1" else 3)


@pytest.mark.parametrize("part", [["--arch", "sm_80"], ["--model", "rows"], ["--routine", "implicit"]])
def test_a_part_is_not_recorded(part: list[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--record", *part])


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_there_is_at_least_one_job(jobs: str) -> None:
    with pytest.raises(SystemExit):
        command.main(["--jobs", jobs])


def test_other_processes_find_what_checks_a_layer() -> None:
    """They do not import the ``__main__`` of a package."""
    assert pickle.loads(pickle.dumps(vars(command)["check"])) is kernel_check.check


def test_the_table_counts_kernels_and_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Kernel("lacking", GOOD.assembled, "no mma.sync")
    found = iter([[GOOD, BAD], [GOOD], [lacking]] * 2)
    monkeypatch.setattr(command, "ARCHITECTURES", ("sm_86", "sm_90"))
    monkeypatch.setattr(command, "MODELS", ("transformer",))
    monkeypatch.setattr(command, "check", lambda *_: next(found))
    monkeypatch.setattr(command, "circumstances", lambda *_: MADE)
    monkeypatch.setattr(command, "assembler_version", lambda: "ptxas 1.2.3")
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    # What was looked at of one routine does not count twice.
    kept = ["-o", str(tmp_path / "cuda.json")]
    Record.at(tmp_path / "cuda.json").add(key_of("sm_86", "transformer", "layer0", "implicit"), [GOOD])
    assert command.main(["--record", *kept]) == 1
    (table,) = read_computed(tmp_path)
    assert table.columns == (
        "target",
        "transformer",
        "all",
        "most registers of a thread",
        "with spills",
        "other faults",
    )
    assert table.rows == (("sm_86", 4, 4, 255, 1, 1), ("sm_90", 4, 4, 255, 1, 1))
    assert "ptxas 1.2.3" in table.source


@pytest.mark.skipif(assembler() is None, reason="ptxas is not installed")
def test_the_assembler_says_its_version() -> None:
    assert re.fullmatch(r"ptxas \d+\.\d+\.\d+", assembler_version())


@pytest.mark.parametrize(
    ("kernel", "shared", "said"),
    [
        (Assembled("k", 255, 8, 16, 128), 0, "16 bytes spilled, 8 bytes of stack, 255 registers"),
        # 65536 registers: 128 of 512 threads, and these are taken eight at a time.
        (Assembled("k", 129, 0, 0, 512), 0, "512 threads of 129 registers do not fit a multiprocessor"),
        (Assembled("k", 128, 0, 0, 512), 0, None),
        (Assembled("k", 113, 0, 0, 576), 0, "576 threads of 113 registers do not fit a multiprocessor"),
        (Assembled("k", 96, 0, 0, 128), 99 * 1024 + 4, "101380 bytes of shared memory, 101376 are allowed"),
        (Assembled("k", 96, 0, 0, 128), 99 * 1024, None),
    ],
)
def test_what_exceeds_a_limit_is_a_fault(kernel: Assembled, shared: int, said: str | None) -> None:
    assert kernel_check._excess(kernel, shared, "sm_86") == said


def test_shared_memory_is_what_the_kernel_allocates() -> None:
    space = "#gpu.address_space<workgroup>"
    code = f"""
      %a = memref.alloc() : memref<1536xf32, {space}>
      %b = memref.alloc() : memref<100xf16, {space}>
      %c = nvgpu.device_async_copy %0[%1], %a[%2], 4 : memref<15xf32> to memref<1536xf32, {space}>
    """
    assert shared_bytes(code) == 1536 * 4 + 100 * 2


_WHOLE = "  mma.sync.a;\n  ldmatrix.sync.b;\n  cp.async.ca.shared.global c;\n"
_WITHOUT_COPIES = "  mma.sync.a;\n  ldmatrix.sync.b;\n  cp.async.commit_group;\n  cp.async.wait_group 0;\n"
_THREADS = "  ld.shared.f32 a;\n  fma.rn.f32 b;\n"


@pytest.mark.parametrize(
    "routine",
    [
        *("f32/conv2d.implicit", "i8/conv2d.implicit_to_f32", "f16/conv2d.half_implicit"),
        *("f32/fused.attention", "f32/fused.separable_product"),
    ],
)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (_WHOLE, None),
        (_WHOLE.replace("ca.", "cg."), None),
        (_WITHOUT_COPIES, "no cp.async"),
        ("  cp.async.cg.shared.global c;\n", "no mma.sync, ldmatrix.sync"),
    ],
)
def test_a_kernel_of_tensor_cores_has_copies_fragments_and_products(routine: str, body: str, said: str | None) -> None:
    assert kernel_check._missing(f"cuda:{routine}{{split=1}}", "v0_kernel", body, ["v0_kernel"]) == said


@pytest.mark.parametrize(
    ("descriptor", "kernel", "body", "said"),
    [
        ("f32/conv2d.implicit{split=2}", "v0_kernel", _THREADS, None),
        ("f32/conv2d.implicit{split=16}", "v0_kernel", _THREADS, None),
        ("f32/conv2d.implicit{split=2}", "v0_parts", _THREADS, "no mma.sync, cp.async, ldmatrix.sync"),
        ("f32/conv2d.iree_implicit{thread=1x8x8}", "v0_dispatch_0_conv_1x8", _THREADS, None),
        ("f32/conv2d.iree_implicit{thread=1x8x8}", "v0_dispatch_0_conv_1x8", "  fma.rn.f32 b;\n", "no ld.shared"),
        ("f16/conv2d.iree_implicit{depth=64,warp=1x4}", "v0_dispatch_1_matmul_like_8", _THREADS, "no mma.sync"),
        ("f16/conv2d.iree_implicit{depth=64,warp=1x4}", "v0_dispatch_0_slow_memcpy", "", None),
        ("f32/softmax.warp_row{warps=4}", "v0_kernel", "  ld.shared.f32 a;\n", "no shfl.sync"),
        ("f32/depthwise2d.thread_window{pixels=2}", "v0_kernel", "", None),
    ],
)
def test_of_other_kernels_that_is_expected_which_makes_them(
    descriptor: str, kernel: str, body: str, said: str | None
) -> None:
    beside = [kernel, "v0_dispatch_1_matmul_like_8"]
    assert kernel_check._missing(f"cuda:{descriptor}", kernel, body, beside) == said


def test_some_kernel_of_a_variant_multiplies_whatever_they_are_called() -> None:
    descriptor = "cuda:f16/conv2d.iree_implicit{depth=64,warp=1x4}"
    assert (
        kernel_check._missing(descriptor, "v0_dispatch_0_other", "", ["v0_dispatch_0_other"])
        == "no mma.sync, ld.shared"
    )


def test_a_fault_is_printed_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "check", lambda *_: [BAD])
    assert command.main(["--arch", "sm_86", "--model", "transformer"]) == 1
    assert "bad: 16 bytes spilled" in capsys.readouterr().out
