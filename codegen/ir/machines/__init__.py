"""What processors and GPUs are and can do: limits, rates, and how their features are asked."""
