"""From layers to code: analysis, kernels, IREE's lowerings, and linking what was chosen."""
