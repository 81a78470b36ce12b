"""Recurrent operators, unrolled."""
