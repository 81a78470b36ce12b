"""Branches, loops, sequences and optionals: taken, written out and resolved; constants of bodies lifted."""
