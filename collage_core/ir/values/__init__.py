"""What values are: their specification, content hashes, sparse and foreign values."""
