"""From a recipe to a proved package: export, lower, prove."""
