"""cuBLASLt on NVIDIA GPUs as a Collage toolchain."""
