"""Layers on GPUs of NVIDIA: convolutions and products, windows and rows, and models of their run times."""
