"""TensorRT and TensorRT for RTX on NVIDIA GPUs as Collage toolchains."""
