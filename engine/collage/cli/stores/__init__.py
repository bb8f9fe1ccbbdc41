"""Commands over the tuning store."""
