"""Demonstrations: traffic that looks real, and what happens to a query that nobody coordinates."""
