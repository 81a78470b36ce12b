"""Runs that outlast a call: those that have begun, and those whose inputs and outputs stay where they are."""
