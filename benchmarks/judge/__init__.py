"""Parts of the harness: contenders, their processes, the rounds, the statistics and the report."""
