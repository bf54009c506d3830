"""What can be compiled beside a Recipe: a saved ExportedProgram, a plain callable or module with example inputs."""
