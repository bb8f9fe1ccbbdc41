"""What an optimization ends with: its result, for one or several input shapes, and whether it is needed at all."""
