"""Models, indices over them, and candidates cut out of them."""
