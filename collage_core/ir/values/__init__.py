"""Values: specifications, content hashes, sparse and foreign values."""
