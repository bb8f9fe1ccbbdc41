"""What lower precision of each group of products does to the outputs of a model, found out by runs of one model."""
