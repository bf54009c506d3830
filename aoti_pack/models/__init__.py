"""Models that ship with the project: one recipe each, and what trains them."""
