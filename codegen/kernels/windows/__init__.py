"""Windows over each channel by itself, two layers fused by row strips, and concatenation."""
