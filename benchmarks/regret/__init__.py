"""What the default search loses against the best known plan, by replay over generated models."""
