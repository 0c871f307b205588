"""What a run leaves behind: the run folder, the metrics it holds, and reading it back."""
