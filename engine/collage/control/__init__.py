"""User decisions that override the search: pins, tie-breaking, plan files, fusion specs."""
