#!/usr/bin/env bash
# onnx-tool packs unsigned codes of four bits without their highest bit.
#
# Versions: onnx-tool 1.0.1, onnx 1.23.2, numpy 2.4.6.
# Behaviour: onnx_tool.quantization quantises weights to codes of four bits, symmetric ones from -7 to 7, or asymmetric
# ones from 0 to 15 with a zero point, and packs two into a byte. Packing keeps the three lowest bits, and the sign of a
# byte as the fourth, which no code from 0 to 15 has: 8 to 15 are stored as 0 to 7, and the upper half of the weights
# comes back below the lower one. ONNX's UINT4 has 0 to 15 in four bits. Symmetric codes are packed right.
# Output seen: "weights 0 to 15 by asymmetric codes: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], unpacked
# [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]; symmetric codes -7 to 7 the same".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet onnx-tool==1.0.1 onnx==1.23.2 numpy==2.4.6 tabulate==0.10.0

"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
from onnx_tool.quantization import pack_4bits, quantize


def codes(weights, kind):
    """The codes of one row of weights, and those that its bytes hold, low half first."""
    found, _, _ = quantize(weights.reshape(1, -1), block=-1, type=kind, bits=4)
    packed = pack_4bits(found).ravel()
    halves = np.stack([packed & 15, packed >> 4], 1).ravel().astype(int)
    if kind == "sym":
        halves = np.where(halves > 7, halves - 16, halves)
    return found.ravel().tolist(), halves.tolist()


unsigned, unpacked = codes(np.arange(16, dtype=np.float32), "asym")
signed, same = codes(np.arange(-7, 9, dtype=np.float32).clip(max=7), "sym")
print(
    f"weights 0 to 15 by asymmetric codes: {unsigned}, unpacked {unpacked}; symmetric codes {min(signed)} to "
    f"{max(signed)} {'the same' if signed == same else 'not the same'}"
)
assert unsigned == list(range(16)) and unpacked == [*range(8), *range(8)]
assert signed == same and (min(signed), max(signed)) == (-7, 7)
PYTHON
