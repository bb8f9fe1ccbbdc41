"""The minimal core of Collage: the IR, the contract with toolchain plugins, patterns, fusion rules and the search."""
