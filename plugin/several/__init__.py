"""One file with several plans: for CPU levels, for devices, and for shapes of the inputs."""
