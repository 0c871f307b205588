"""What is not collected: a script that is read, and would start Spark."""

collect_ignore = ["followed_classes.py"]
