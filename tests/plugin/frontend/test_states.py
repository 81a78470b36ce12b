"""Which inputs and outputs are states: what users declare, by name or pattern, and what exporters name so."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx.parser
import pytest
from onnx import helper, numpy_helper

from sartor.errors import UsageError
from sartor.frontend.states import DeclaredStates, states_of
from sartor.onnx_model.graphs.prepared import TensorInfo
from sartor.onnx_model.states.state_names import is_state_pair
from sartor.policies import StatePolicy
from sartor.runtime.driver.bound_input import Bindings
from sartor.runtime.driver.state import State
from sartor.settings.state_patterns import StatePattern

KEYS = ["past_key_values.0.key", "past_key_values.0.value", "past_key_values.1.key"]
PRESENT = [name.replace("past_key_values", "present") for name in KEYS]


def infos(**shapes: tuple[int, ...]) -> list[TensorInfo]:
    return named(shapes)


def named(shapes: Mapping[str, tuple[int, ...]], dtype: str = "float32") -> list[TensorInfo]:
    return [TensorInfo(name, shape, np.dtype(dtype)) for name, shape in shapes.items()]


def states(
    inputs: list[TensorInfo],
    outputs: list[TensorInfo],
    *declared: str,
    finds: bool = False,
    bindings: Bindings | None = None,
) -> tuple[State, ...]:
    given, made = (
        [helper.make_tensor_value_info(each.name, 1, each.shape) for each in both] for both in (inputs, outputs)
    )
    model = helper.make_model(helper.make_graph([], "net", given, made))
    policy = StatePolicy(tuple(map(StatePattern.parse, declared)), finds)
    found = DeclaredStates.of(model, policy, bindings or {})
    return states_of(found, inputs, outputs, policy)


def test_patterns_pair_what_is_the_same_in_both() -> None:
    assert StatePattern.parse("present.*=past_key_values.*").pairs([*PRESENT, "logits"], ["x", *reversed(KEYS)]) == [
        *zip(PRESENT, KEYS, strict=True)
    ]
    twice = StatePattern.parse("*.new.*=*.old.*").pairs(["a.new.b", "b.new.a"], ["a.old.b", "b.old.a"])
    assert twice == [("a.new.b", "a.old.b"), ("b.new.a", "b.old.a")]
    assert StatePattern.parse("next_*=*").pairs(["y", "next_h"], ["x", "h"]) == [("next_h", "h")]
    assert StatePattern.parse("a.c=b[0]").pairs(["a.c", "abc"], ["b[0]", "b0"]) == [("a.c", "b[0]")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h", "the state 'h' cannot be read, expected OUTPUT=INPUT"),
        ("=h", "cannot be read"),
        ("p.*=q", "another number of \\* on each side"),
        ("hm=h", "--state hm=h: the model has no output 'hm'; its outputs are 'hn', 'p.1', 'p.2', 'y'"),
        ("hn=k", "the model has no input 'k'; its inputs are 'h', 'q.1', 'x'"),
        ("p.*=q.*", "the output 'p.2' has no counterpart among the inputs 'q.1'; name the states one by one"),
    ],
)
def test_what_names_nothing_is_refused(text: str, said: str) -> None:
    inputs, outputs = (named(dict.fromkeys(names, (2,))) for names in (["h", "x"], ["hn", "y"]))
    inputs.insert(1, TensorInfo("q.1", (2,), np.dtype(np.float32)))
    outputs[1:1] = [TensorInfo(name, (2,), np.dtype(np.float32)) for name in ("p.1", "p.2")]
    with pytest.raises(UsageError, match=said):
        StatePattern.parse(text).pairs([output.name for output in outputs], [each.name for each in inputs])


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (["hn=h", "y=h"], "names the input 'h' twice"),
        (["hn=h", "hn=x"], "names the output 'hn' twice"),
        (["y=x"], r"output 'y' is float32\[2, 4\] and input 'x' is float32\[2, 3\]: they differ in size along axis 1"),
        (["z=x"], r"output 'z' is float32\[3, 2\] and .*: a state has one shape and type; .*--no-state"),
        (["i=x"], r"output 'i' is int64\[2, 3\] and input 'x' is float32\[2, 3\]: a state has one shape and type"),
        (["none=empty"], "a state without elements keeps nothing"),
    ],
)
def test_what_is_no_state_is_refused(declared: list[str], said: str) -> None:
    inputs = infos(h=(2, 3), x=(2, 3), empty=(0, 3))
    outputs = [*infos(hn=(2, 3), y=(2, 4), z=(3, 2), none=(0, 3)), *named({"i": (2, 3)}, "int64")]
    with pytest.raises(UsageError, match=said):
        states(inputs, outputs, *declared)


def test_a_state_that_grows_is_said_to_grow() -> None:
    with pytest.raises(UsageError, match=r"differ in size along axis 1, and a state that grows cannot be kept .* yet"):
        states(infos(past=(2, 3)), infos(present=(2, 4)), "present=past")
    assert states(infos(past=(2, 3)), infos(present=(2, 4)), finds=True) == ()


def test_bindings_and_defaults_are_what_states_begin_with() -> None:
    inputs, outputs = infos(h=(2,), c=(2,), k=(1,)), infos(hn=(2,), cn=(2,))
    found = states(inputs, outputs, "hn=h", "cn=c", bindings={"h": (1.5, 2), "c": (0, 0), "k": (3,)})
    assert found == (State("h", "hn", (1.5, 2)), State("c", "cn"))
    for start in ((1.0,), (1.0, 1e60)):
        with pytest.raises(UsageError, match=r"the start .* of state 'h' is no value of float32\[2\]; give a finite"):
            states(inputs, outputs, "hn=h", bindings={"h": start})
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 19]> net (float[2] h) => (float[2] hn) { }')
    model.graph.initializer.append(numpy_helper.from_array(np.array([4, 5], np.float32), "h"))
    policy = StatePolicy((StatePattern("hn", "h"),))
    declared = DeclaredStates.of(model, policy, {"other": (1,)})
    assert (dict(declared.starts), dict(declared.bindings)) == ({"h": (4.0, 5.0)}, {"other": (1,)})
    assert not model.graph.initializer


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_0", "present_0"),
        ("past_key_self_3", "present_key_self_3"),
        ("h", "hn"),
        ("c0", "cn"),
        ("state", "stateN"),
        ("stateIn", "stateOut"),
        ("state_in", "state_out"),
        ("lstm_state_in.1", "lstm_state_out.1"),
        ("hidden_0", "next_hidden_0"),
        ("cached_key_3", "new_cached_key_3"),
        ("att_cache", "r_att_cache"),
        ("conv_cache", "conv_cache_out"),
        ("cache_last_channel", "cache_last_channel_next"),
        ("prev_state", "state"),
        ("input_states_1", "output_states_1"),
        ("in_cache", "out_cache"),
    ],
)
def test_names_that_exporters_give(given: str, made: str) -> None:
    assert is_state_pair(given, made)
    inputs, outputs = named({"x": (1, 2), given: (1, 2)}), named({"y": (1, 2), made: (1, 2)})
    assert states(inputs, outputs, finds=True) == (State(given, made),)
    assert states(inputs, outputs) == ()
    assert states(inputs, named({"y": (1, 2), made: (2, 2)}), finds=True) == ()
    assert states(inputs, named({made: (1, 2)}, "float16"), finds=True) == ()


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ("x", "next_x"),
        ("input", "output"),
        ("x_in", "x_out"),
        ("pastel", "presentel"),
        ("image", "image_out"),
        ("gru_input", "gru_output"),
        ("input_1", "output_1"),
        ("input_hidden_states", "output_hidden_states"),
        ("hidden_states", "hidden_states_out"),
        ("hidden_states", "new_hidden_states"),
        ("h", "h"),
    ],
)
def test_other_names_are_no_states(given: str, made: str) -> None:
    assert not is_state_pair(given, made)


def test_what_calls_are_about_is_no_state() -> None:
    height = named({"x": (2,), "h": (1,)}), named({"y": (2,), "new_h": (1,)})
    assert states(*height, finds=True) == ()
    assert states(infos(h=(2,), c=(2,)), infos(hn=(2,), cn=(2,)), finds=True) == ()
    assert len(states(infos(h=(2,), c=(2,)), infos(hn=(2,), y=(2,)), "y=c", finds=True)) == 2
    # A decoder's own caches grow, those of the encoder beside them do not.
    inputs = {"x": (1,), "past_key_values.0.encoder.key": (1, 4), "past_key_values.0.decoder.key": (1, 4)}
    outputs = {"y": (1,), "present.0.encoder.key": (1, 4), "present.0.decoder.key": (1, 5)}
    assert states(named(inputs), named(outputs), finds=True) == ()
    outputs["present.0.decoder.key"] = (1, 4)
    assert len(states(named(inputs), named(outputs), finds=True)) == 2
    # What says how long they are is none of them.
    counted = [*named(inputs), *named({"past_sequence_length": (1,)}, "int32")]
    assert len(states(counted, named(outputs), finds=True)) == 2


def test_a_name_with_two_successors_is_no_state() -> None:
    assert states(infos(h=(2,)), infos(hn=(2,), h_n=(2,)), finds=True) == ()
    assert states(infos(h=(2,), h0=(2,)), infos(hn=(2,)), finds=True) == ()
    declared = states(infos(h=(2,), h0=(2,)), infos(hn=(2,), y=(2,)), "y=h", finds=True)
    assert declared == (State("h", "y"), State("h0", "hn"))
