"""Lower precision: calibration, the variants that a layer may run, and the outputs' errors when layers are rounded."""
