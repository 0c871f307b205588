"""What a running job needs. A deployed job installs this package and nothing else of Blazes."""
