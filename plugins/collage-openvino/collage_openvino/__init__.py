"""OpenVINO on the CPU as a Collage toolchain."""
