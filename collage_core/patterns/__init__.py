"""The dataflow pattern language and the tables plugins fill."""
