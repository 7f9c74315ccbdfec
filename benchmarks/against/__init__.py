"""This checkout's assignors beside those of another one, goal by goal: `python -m benchmarks.against OTHER_CHECKOUT`."""
