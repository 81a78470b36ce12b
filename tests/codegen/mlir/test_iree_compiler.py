"""The compiler as a library: modules compiled straight to files, and what it leaves alone, signals among it."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.dispatches import module_header
from sartor.codegen.mlir.iree_compiler import compile_module, ir, write_module
from sartor.errors import CompileError

FLAGS = Target.create("cpu").flags
TEXT = """
util.func public @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  util.return %y : tensor<4xf32>
}
"""
CALL = """
util.func private @g(%x: tensor<4xf32>) -> tensor<4xf32>
util.func public @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = util.call @g(%x) : (tensor<4xf32>) -> tensor<4xf32>
  util.return %y : tensor<4xf32>
}
"""


def test_the_file_is_what_compiling_in_memory_gives(tmp_path: Path) -> None:
    path = tmp_path / "module.vmfb"
    path.write_bytes(b"older and longer" * 10_000)
    write_module(lambda: ir.Module.parse(TEXT), path, FLAGS, start="input")
    with ir.Context():
        buffer = io.BytesIO()
        ir.Module.parse(TEXT).operation.write_bytecode(buffer)
    assert path.read_bytes() == compile_module(buffer.getvalue(), FLAGS, start="input")


def test_weights_are_embedded(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(1 << 16, np.float32)

    def make() -> ir.Module:
        module = ir.Module.parse(f"util.global public @w : tensor<{values.size}xf32>")
        attribute = ir.DenseResourceElementsAttr.get_from_buffer(
            values, "w", ir.RankedTensorType.get(values.shape, ir.F32Type.get())
        )
        module.body.operations[0].operation.attributes["initial_value"] = attribute
        return module

    path = tmp_path / "module.vmfb"
    write_module(make, path, FLAGS, start="input")
    assert values.tobytes() in path.read_bytes()


@pytest.mark.parametrize(
    ("text", "start", "message"),
    [
        (TEXT, "flow", r"IREE rejected the module: .*arith.addf"),
        (CALL, "input", r"module.vmfb' cannot be written: .*'vm.import' op must reference a function in a module"),
    ],
)
def test_what_iree_rejects_is_said(tmp_path: Path, text: str, start: str, message: str) -> None:
    path = tmp_path / "module.vmfb"
    with pytest.raises(CompileError, match=message):
        write_module(lambda: ir.Module.parse(text), path, FLAGS, start=start)
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "module.vmfb"
    with pytest.raises(CompileError, match=r"none/module.vmfb' cannot be written"):
        write_module(lambda: ir.Module.parse(TEXT), path, FLAGS, start="input")


def test_long_chains_of_values_on_a_device_are_compiled() -> None:
    """IREE's default ends below 200 links, as a network of 242 layers showed; each link here updates the one before."""
    attributes, devices = module_header(Target.create("cpu"))
    links = "\n".join(
        f"%t{link + 1} = flow.tensor.update %one, %t{link}[%c0] : tensor<1xf32> -> %t{link} as tensor<8xf32>"
        for link in range(1000)
    )
    here = "to #hal.device.affinity<@__device_0>"
    text = f"""module attributes {{{attributes}}} {{
    {devices}
    util.func public @f(%a: !hal.buffer_view, %b: !hal.buffer_view) -> !hal.buffer_view {{
      %c0 = arith.constant 0 : index
      %x = hal.tensor.import %a : !hal.buffer_view -> tensor<8xf32>
      %y = hal.tensor.import %b : !hal.buffer_view -> tensor<1xf32>
      %t0 = flow.tensor.transfer %x : tensor<8xf32> {here}
      %one = flow.tensor.transfer %y : tensor<1xf32> {here}
      {links}
      %r = hal.tensor.export %t1000 : tensor<8xf32> -> !hal.buffer_view
      util.return %r : !hal.buffer_view
    }}
    }}"""
    assert compile_module(text, FLAGS, start="flow")


@pytest.mark.parametrize("thread", ["the main", "another"])
def test_the_compiler_leaves_signals_to_their_handlers(thread: str) -> None:
    """LLVM's own handlers, which are installed once in a process, serve one signal: a second one would end it."""
    program = """
import ctypes, signal, sys, threading
from sartor.codegen.ir.target import Target
from sartor.codegen.mlir.machine import machine_of

class Action(ctypes.Structure):  # Linux's sigaction.
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int)]
    _fields_ += [("restorer", ctypes.c_void_p)]

def handler(number):
    action = Action()
    ctypes.CDLL(None).sigaction(number, None, ctypes.byref(action))
    return action.handler

signal.signal(signal.SIGTERM, lambda number, frame: None)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
before = [handler(number) for number in asking]
target = Target.create("cpu")
if sys.argv[1] == "another":
    compiling = threading.Thread(target=machine_of, args=(target, "f32"))
    compiling.start()
    compiling.join()
machine_of(target)
print([handler(number) for number in asking] == before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, thread], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_handler_that_is_set_meanwhile_stays() -> None:
    """As by a program that compiles in one thread and is told in its main one how it is to end."""
    program = """
import os, signal
from sartor.codegen.mlir.signal_handlers import keeping_signal_handlers

with keeping_signal_handlers():
    signal.signal(signal.SIGHUP, lambda number, frame: print("handled"))
os.kill(os.getpid(), signal.SIGHUP)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
