"""Build, check and time candidates in worker processes, on values captured from a real run."""
