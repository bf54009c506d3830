"""From a proved package to a Triton model repository."""
