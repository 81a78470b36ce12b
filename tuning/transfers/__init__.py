"""Conversions between layers, and transfers: what it takes to move a tensor to another device and go on there."""
