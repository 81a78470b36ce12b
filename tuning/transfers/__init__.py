"""Transfers: what it takes to move a tensor to another device and to begin a segment there."""
