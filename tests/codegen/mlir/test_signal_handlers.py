"""Who handles signals while modules are compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest


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
machine_of(target, "f32")
print([handler(number) for number in asking] == before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, thread], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
