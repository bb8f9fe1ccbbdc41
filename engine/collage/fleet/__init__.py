"""Use machines of runners: jobs, whose machines take part, and what measures on them."""
