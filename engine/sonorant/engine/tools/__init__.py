"""Commands that examine this machine, and compile kernels for others."""
