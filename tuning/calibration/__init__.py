"""Calibration methods: each finds the 8-bit range of a tensor from samples of its values, one method per file."""
