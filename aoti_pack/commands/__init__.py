"""The commands of the command line, one a file: thin shells over one function of the package."""
