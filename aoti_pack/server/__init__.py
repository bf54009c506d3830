"""Finding, installing, building for and running a real Triton server."""
