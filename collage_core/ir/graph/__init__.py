"""Index a graph: node order, sets of nodes, canonical form, extraction of sub-graphs, estimated work."""
