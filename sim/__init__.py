"""The simulated farm and the benchmark."""
