"""Records of tuning: measurements, the machine that they were made on, and plans."""
