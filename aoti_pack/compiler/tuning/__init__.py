"""Choosing how to compile and how to serve by measuring: `search.tune` is the way in."""
