"""Goldens are compared, not collected."""

collect_ignore_glob = ["*"]
