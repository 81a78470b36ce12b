"""Routines whose workgroups and register tiles are ours, and whose code is IREE's."""
