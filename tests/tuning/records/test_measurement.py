"""Records of measurements, and which are doubted once the machine is quiet."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from sartor.runtime.driver.cpuinfo import parsed
from sartor.tuning.records.doubts import Doubts
from sartor.tuning.records.hardware import hardware_of, host
from sartor.tuning.records.measurement import (
    MESSAGE_LIMIT,
    Measurement,
    MeasurementKey,
    Status,
    runtime_key,
    shorten,
    typical_time,
)

KEY = MeasurementKey("task", "cpu:f32/conv2d.nhwc{tile=4}", "source", "machine", 1, "runtime", "cpu/host")

X86 = """\
processor\t: {index}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8481C CPU
stepping\t: 8
cpu MHz\t\t: {mhz}
cache size\t: 107520 KB
flags\t\t: fpu vme sse sse2 smep avx512f {flags} amx_bf16 fma
"""
ARM = """\
processor\t: 0
BogoMIPS\t: 38.40
Features\t: fp asimd evtstrm aes asimddp sve i8mm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: {part}
CPU revision\t: 1
"""


def ok(samples: tuple[float, ...], baseline: tuple[float, ...] = ()) -> Measurement:
    return Measurement(KEY, Status.OK, samples, baseline, error=1e-6)


def test_time_is_the_lower_quartile_in_any_order() -> None:
    assert ok((5.0, 1.0, 4.0, 2.0, 3.0)).time == 2.0
    assert ok((1.0, 2.0)).time == 1.25
    assert ok((7.0,)).time == 7.0


def test_time_survives_a_lucky_sample_and_a_run_that_is_mostly_disturbed() -> None:
    rng = random.Random(0)
    quiet = [1.0 + 0.01 * rng.random() for _ in range(10)]
    disturbed = [2.0 + rng.random() for _ in range(20)]
    assert typical_time([*quiet, *disturbed]) == pytest.approx(1.0, rel=0.02)
    assert typical_time([0.3, *quiet]) == pytest.approx(1.0, rel=0.02)


def test_time_hardly_depends_on_the_number_of_samples() -> None:
    """Unlike the minimum, which would favour whatever ran more often."""
    rng = random.Random(1)
    few, many = ([[rng.gauss(1.0, 0.02) for _ in range(n)] for _ in range(200)] for n in (8, 80))
    typical = [sum(map(typical_time, runs)) / len(runs) for runs in (few, many)]
    lowest = [sum(map(min, runs)) / len(runs) for runs in (few, many)]
    assert abs(typical[0] - typical[1]) < 0.2 * abs(lowest[0] - lowest[1])


def test_time_at_compares_runs_on_a_machine_that_has_become_slower() -> None:
    fast, slow = ok((1.0, 1.0), (2.0, 2.0)), ok((1.4, 1.4), (2.8, 2.8))
    assert fast.time_at(2.0) == pytest.approx(slow.time_at(2.0)) == pytest.approx(1.0)
    assert ok((1.5,)).time_at(2.0) == 1.5


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
def test_failures_have_no_time(status: Status) -> None:
    failure = Measurement(KEY, status, samples=(1.0,), message="why")
    with pytest.raises(ValueError, match=status.value):
        _ = failure.time


@pytest.mark.parametrize(
    "change",
    [
        {"samples": ()},
        {"samples": (0.0,)},
        {"samples": (math.inf,)},
        {"samples": (math.nan,)},
        {"baseline_samples": (-1.0,)},
        {"error": math.nan},
        {"error": -1.0},
    ],
)
def test_impossible_measurements_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"conv2d\.nhwc"):
        replace(ok((1.0,)), **change)  # type: ignore[arg-type]


def test_an_output_with_nan_has_infinite_error() -> None:
    assert Measurement(KEY, Status.WRONG_RESULT, error=math.inf).error == math.inf


def test_messages_are_cut_in_the_middle() -> None:
    message = "the cause" + "x" * 100_000 + "the end"
    kept = Measurement(KEY, Status.CRASHED, message=message).message
    assert len(kept) == MESSAGE_LIMIT
    assert kept.startswith("the cause")
    assert kept.endswith("the end")
    assert shorten("short", 5) == "short"


def test_messages_that_are_not_text_are_escaped() -> None:
    message = b"caf\xc3\xa9 \xff \0".decode("utf-8", "surrogateescape")
    assert Measurement(KEY, Status.CRASHED, message=message).message == "café \\udcff \\0"


def test_runtime_key_names_the_compiler_that_is_installed() -> None:
    assert "iree-compiler 3." in runtime_key()
    assert "protocol" in runtime_key()


def cpuinfo(cores: int, mhz: float = 2700.0, flags: str = "avx2") -> str:
    return "\n".join(X86.format(index=i, mhz=mhz + i, flags=flags) for i in range(cores))


def test_hardware_key_ignores_clock_rates_and_kernel_flags() -> None:
    key = hardware_of(parsed(cpuinfo(2)), "x86_64", 2).key
    assert hardware_of(parsed(cpuinfo(2, mhz=3100.0)), "x86_64", 2).key == key
    assert hardware_of(parsed(cpuinfo(2, flags="avx2 retpoline tsc_known_freq")), "x86_64", 2).key == key


def test_hardware_key_is_the_same_in_every_release() -> None:
    """Stores of users hold it: a change here would forget all their measurements."""
    assert hardware_of(parsed(cpuinfo(2)), "x86_64", 2).key == (
        "Intel(R) Xeon(R) Platinum 8481C CPU (6/143/8/107520 KB), x86_64, 2 cores [7ccfdf4cbcbf]"
    )


def test_hardware_key_tells_instructions_cores_and_models_apart() -> None:
    keys = {
        hardware_of(parsed(cpuinfo(2)), "x86_64", 2).key,
        hardware_of(parsed(cpuinfo(2, flags="avx2 avx512_vnni")), "x86_64", 2).key,
        hardware_of(parsed(cpuinfo(4)), "x86_64", 4).key,
        hardware_of(parsed(cpuinfo(2).replace("8481C", "8490H")), "x86_64", 2).key,
    }
    assert len(keys) == 4


def test_features_are_instruction_sets_only() -> None:
    assert hardware_of(parsed(cpuinfo(1)), "x86_64", 1).features == (
        "amx_bf16",
        "avx2",
        "avx512f",
        "fma",
        "sse",
        "sse2",
    )


def test_arm_with_two_kinds_of_cores() -> None:
    text = ARM.format(part="0xd80") + "\n" + ARM.format(part="0xd82")
    hardware = hardware_of(parsed(text), "aarch64", 2)
    assert hardware.models == ("Arm 0x41/8/0x0/0xd80/1", "Arm 0x41/8/0x0/0xd82/1")
    assert hardware.features == ("asimd", "asimddp", "i8mm", "sve")


def test_a_machine_without_cpuinfo_still_has_a_key() -> None:
    hardware = hardware_of(parsed(""), "arm64", 8)
    assert "arm64, 8 cores" in hardware.key
    assert hardware.models[0]


def test_this_machine_has_a_key_of_one_line() -> None:
    assert host().key == host().key
    assert "\n" not in host().key
    assert host().cores >= 1


def _measurement(name: str, load: float) -> Measurement:
    key = MeasurementKey("task", name, "source", "hardware", 1, "runtime", "cpu")
    return Measurement(key, Status.OK, (1.0,), foreign_load=load)


_ALONE, _BESIDE = _measurement("alone", 0.0), _measurement("beside", 0.5)
_KNOWN = {each.key: each for each in (_ALONE, _BESIDE)}


def test_what_was_measured_beside_others_does_not_hold_once_it_is_quiet() -> None:
    assert Doubts(lambda: True).holding(_KNOWN) == {_ALONE.key: _ALONE}
    assert Doubts(lambda: False).holding(_KNOWN) == _KNOWN


def test_what_this_compilation_measured_holds() -> None:
    doubts = Doubts(lambda: True)
    doubts.made(_BESIDE.key)
    assert doubts.holding(_KNOWN) == _KNOWN


def test_the_machine_is_asked_about_once_and_only_if_that_matters() -> None:
    asked: list[int] = []

    def is_quiet() -> bool:
        asked.append(1)
        return True

    doubts = Doubts(is_quiet)
    assert not doubts.about(_ALONE)
    assert asked == []
    assert all(doubts.about(_BESIDE) for _ in range(3))
    assert asked == [1]
