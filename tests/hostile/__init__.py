"""Damaged files of every kind that Sartor reads, given to what reads them."""
