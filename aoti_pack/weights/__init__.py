"""Weights of a served model, replaced without compiling and without a restart."""
