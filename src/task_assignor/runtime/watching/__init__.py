"""What a run tells those who watch it: result, log, metrics."""
