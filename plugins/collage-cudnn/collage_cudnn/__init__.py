"""cuDNN's graph API on NVIDIA GPUs as a Collage toolchain."""
