"""Read and write models and values."""
