"""Routines for products by weights in blocks of small integers."""
