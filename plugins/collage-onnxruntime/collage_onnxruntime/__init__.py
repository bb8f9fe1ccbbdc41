"""ONNX Runtime on the CPU as a Collage toolchain."""
