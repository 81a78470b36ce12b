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
