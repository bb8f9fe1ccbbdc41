"""Measure and optimize on other machines: jobs, who serves them there, and what leases them here."""
