"""A plan as a picture: titles of its kernels, what is drawn in which picture, and where."""
