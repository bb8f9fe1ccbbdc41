"""What crosses a process or a disk as JSON: the strict converter, and what is said of an artifact."""
