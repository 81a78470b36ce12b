"""Networks of open sizes: what two imports of a model, for other sizes, have in common, as code for any size."""
