"""One task at work: what it reads, its processors with their stores, and where what it gives goes."""
