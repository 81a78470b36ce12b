"""Conditionals and loops: taken branches inlined, short loops written out, constants of bodies lifted."""
