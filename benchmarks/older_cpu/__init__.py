"""Runs other runtimes on this x86-64 CPU by the code that they have for one without AVX-512, VNNI and AMX."""
