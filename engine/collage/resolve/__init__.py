"""Find plans from what a store has: for a machine that is elsewhere, without its toolchains."""
