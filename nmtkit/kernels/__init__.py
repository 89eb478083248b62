"""Kernels in C++ for decoding on a CPU, where torch needs several operations and more time."""
