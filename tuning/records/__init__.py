"""What is kept of a tuning: measurements, the machine they are of, and plans."""
