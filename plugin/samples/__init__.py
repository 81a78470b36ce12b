"""Inputs that a model is run on: those that the user gives, or drawn ones."""
