"""Lower precision: calibration, which variants a layer may run, and what rounding layers does to the outputs."""
