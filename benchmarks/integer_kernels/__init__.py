"""What share of the machine's peak the kernels for 8-bit integers reach on CPUs without VNNI, layer by layer."""
