"""What a machine offers Sartor, what is missing, and whether it is quiet enough to measure on."""
