"""How often an inference starts something on a device: at batch 1 each start counts, as it takes some microseconds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from sartor.codegen.ir.layer import ENTRY
from sartor.runtime.manifest import BOUND_SUFFIX

_SECONDS = 60.0
_LAUNCH = re.compile(
    r"^\s+vm\.call(?:\.variadic)? @hal\.command_buffer\.(?:dispatch|copy_buffer|fill_buffer)\b", re.MULTILINE
)


def launches(disassembly: str) -> int:
    """The number of launches of an inference, by a module's disassembly.

    Functions have no loops, and command buffers that are recorded once, when the module is loaded, are filled in
    functions without the entry's name. So all are counted; a module with an entry for given buffers has each twice.
    """
    bodies = 2 if f"vm.func @{ENTRY}{BOUND_SUFFIX}(" in disassembly else 1
    return len(_LAUNCH.findall(disassembly)) // bodies


def launches_of(module: Path, seconds: float = _SECONDS) -> int | None:
    """The number of launches of an inference by a compiled module; None if it cannot be disassembled.

    Args:
        module: the file.
        seconds: how long that may take.
    """
    tool = Path(sys.executable).with_name("iree-dump-module")
    command = [str(tool) if tool.exists() else tool.name, "--output=disassembly", str(module)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else launches(done.stdout)
