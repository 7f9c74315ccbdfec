"""What a run has committed: commits and their checkpoints, the files of outputs, what is kept of them and how it is read."""
