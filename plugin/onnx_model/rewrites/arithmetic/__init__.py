"""Operators that the importer lacks, as arithmetic on tensors that it has."""
