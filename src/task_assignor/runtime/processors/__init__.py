"""Ready-made processors: what they compute, exactly, on stores and tables. Reading, writing and restoring are elsewhere."""
