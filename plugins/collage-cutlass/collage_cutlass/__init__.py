"""CUTLASS on NVIDIA GPUs as a Collage toolchain."""
