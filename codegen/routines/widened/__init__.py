"""Routines that multiply 8 bits as pairs of 16-bit numbers, for CPUs of x86 without VNNI."""
