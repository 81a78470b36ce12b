"""Rewrites of recurrent operators and running sums to the steps that they take."""
