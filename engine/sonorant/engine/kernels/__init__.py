"""Triton kernels for CUDA. Each has a plain twin in sonorant.engine.model: code that computes the same on the CPU."""
