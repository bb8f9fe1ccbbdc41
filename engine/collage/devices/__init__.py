"""The devices of this machine: who provides them, what they are, and opening them."""
