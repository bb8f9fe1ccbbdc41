"""Sessions that choose, by the shapes of the inputs, which of several sessions runs."""
