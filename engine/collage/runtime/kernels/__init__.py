"""Load kernels of a package: requirements, library clashes, launching."""
