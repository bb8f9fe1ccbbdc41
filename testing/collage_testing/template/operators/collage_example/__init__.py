"""The toolchain `example` for Collage."""
