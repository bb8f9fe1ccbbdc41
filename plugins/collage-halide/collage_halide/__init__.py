"""Halide on the CPU as a Collage toolchain: fused kernels compiled ahead of time."""
