"""The scripts are run, and never collected."""

collect_ignore_glob = ["scripts/*"]
