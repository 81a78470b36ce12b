"""Measuring on other machines, by Dask: who takes part, what travels, who does what next, and both ends of it."""
