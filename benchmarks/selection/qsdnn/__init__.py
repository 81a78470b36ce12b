"""QS-DNN's experiments: primitives and libraries alone, a simulated GPU beside the CPU, and its searches."""
