"""Values of inputs and outputs outside of graphs: NPZ files, sequences, strings and optional values."""
