"""Triton kernels for CUDA. The plain twin of each is code of sonorant.engine.model, which the CPU runs."""
