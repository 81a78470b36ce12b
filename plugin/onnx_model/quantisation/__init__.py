"""Quantised models as float models whose values have known ranges."""
