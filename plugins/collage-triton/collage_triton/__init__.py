"""Native code generation on NVIDIA GPUs by Triton, as a Collage toolchain."""
