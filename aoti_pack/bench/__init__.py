"""Measuring served models: a client, loads, comparisons."""
