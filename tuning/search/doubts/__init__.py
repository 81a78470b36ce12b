"""Measurements that decide and may be wrong: taken beside other programs, or against all expectation."""
