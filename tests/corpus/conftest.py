"""The files of the corpus are read, and never collected."""

collect_ignore_glob = ["scripts/*", "notebooks/*", "pipelines/*"]
