"""Names in modules, for those who run them: no compiler is needed to know them."""

EXPORT_PREFIX = "run_"
"""Begins the names of functions that call a piece once, in a module that exports pieces one by one."""

REPEAT_PREFIX = "repeat_"
"""Begins the names of functions that call a piece ``REPEATS`` times."""

REPEATS = 8

PARAMETER_SCOPE = "model"
"""IREE's name for the set of weights that a network reads from a file beside it."""
