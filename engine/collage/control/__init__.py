"""What the user decides in place of the search: pins, tie-breaking, plan files, fusion specs."""
