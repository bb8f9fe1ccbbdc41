"""What this machine computes and moves at best, measured once, and what that allows a plan: a roofline estimate."""
