"""aoti-pack: from a PyTorch model to a Python-free Triton server, proved right at every step."""

__version__ = "0.1.0"
