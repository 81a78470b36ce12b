"""Machines of unlike kinds are never mixed."""

from __future__ import annotations

import logging

import pytest

from sartor.codegen.ir.target import Target
from sartor.errors import DeviceError, UsageError
from sartor.tuning.cluster.link import Scheduler
from sartor.tuning.cluster.machine import MEASURE, Machine, this_machine
from sartor.tuning.cluster.party import find_party
from tests.tuning.cluster.machines import BOARD, LAPTOP, machine

V3, ARM = Target.create("cpu", "x86-64-v3"), Target.create("cpu", "aarch64:cortex-a72")
ONE, TWO = machine("1"), machine("2")
SERVER = machine("3", gpus=("cuda:NVIDIA H200",))


def test_a_report_arrives_as_it_was() -> None:
    here = this_machine()
    assert Machine.of_json(here.to_json()) == here
    assert here.resources[MEASURE] == 1
    with pytest.raises(ValueError, match="cannot be read"):
        Machine.of_json("{}")


def test_machines_of_one_kind_work_together_and_others_do_not() -> None:
    party = find_party([ONE, TWO], V3, None)
    assert party.measures(ONE)
    assert party.measures(TWO)
    assert not party.measures(SERVER)
    assert not party.measures(machine("4", threads=2))
    assert party.hardware == LAPTOP.key


def test_of_several_kinds_one_must_be_named() -> None:
    with pytest.raises(UsageError, match="--tune-for") as caught:
        find_party([ONE, SERVER], V3, None)
    assert ONE.kind in str(caught.value)
    assert SERVER.kind in str(caught.value)
    assert find_party([ONE, SERVER], V3, SERVER.kind[:6]).example is SERVER
    assert find_party([ONE, SERVER], V3, "h200").example is SERVER
    with pytest.raises(DeviceError, match="'pi'"):
        find_party([ONE, SERVER], V3, "pi")


def test_only_machines_that_run_the_target_count() -> None:
    board = machine("5", BOARD)
    assert find_party([ONE, board], ARM, None).example is board
    assert find_party([ONE, SERVER], Target.create("cuda", "sm_90"), None).example is SERVER
    with pytest.raises(DeviceError, match="sartor worker"):
        find_party([ONE], ARM, None)


def test_unlike_gpus_beside_one_processor_are_stored_apart() -> None:
    other = machine("6", gpus=("cuda:NVIDIA A100",))
    assert SERVER.measured_as("cpu") == other.measured_as("cpu")
    assert SERVER.measured_as("cuda") != other.measured_as("cuda")


def test_code_for_this_machine_is_not_measured_on_another() -> None:
    with pytest.raises(UsageError, match="--cpu"):
        find_party([ONE], Target.create("cpu"), None)
    assert find_party([this_machine()], Target.create("cpu"), None).hardware == this_machine().hardware.key


def test_workers_of_another_version_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    old = machine("7", code="sartor 0.0.1")
    with caplog.at_level(logging.WARNING):
        assert find_party([ONE, old], V3, None).example is ONE
    assert "sartor 0.0.1" in caplog.text
    with pytest.raises(DeviceError, match="none of this version"):
        find_party([old], V3, None)


@pytest.mark.parametrize(
    "address", ["nonsense://host:8786", "tcp://", "tcp://host", "tcp://host:port", "inproc://here"]
)
def test_an_address_that_is_none_is_refused_before_any_work(address: str) -> None:
    with pytest.raises(UsageError, match=f"'{address}' is no address of a Dask scheduler.*tcp://host:8786"):
        Scheduler.of(address)
