"""Pattern builders shared by several plugins; each module is one family of operator groups."""
