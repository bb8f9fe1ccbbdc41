"""What each operator computes, and which of its forms have a kernel: a table by subject, all of them in `table.py`."""
