"""Commands on packages as files: they run nothing."""
