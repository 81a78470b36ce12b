"""Robustness tests: damaged files of every kind that Sartor reads."""
