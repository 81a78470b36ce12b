"""Kernels for recurrent layers: all steps in one dispatch, the recurrence matrices in the cache over the steps."""
