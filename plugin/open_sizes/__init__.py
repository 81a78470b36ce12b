"""One plan in one file for any size: compiling a model whose sizes are known only when it runs."""
