"""Several plans in one module: of CPU levels, one of which is chosen at load, and of shapes of the inputs."""
