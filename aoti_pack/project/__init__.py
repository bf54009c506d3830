"""Several models from one `models.yaml` into one repository, each compiled only when something changed."""
