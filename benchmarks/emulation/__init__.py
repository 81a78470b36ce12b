"""Instructions that variants for AArch64 execute under emulation, beside what the analytic model says of them."""
