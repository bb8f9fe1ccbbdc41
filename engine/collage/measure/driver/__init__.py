"""The driver's side of measuring: worker processes, captured activations, the measuring cost source."""
