"""For authors of assignors: builders, strategies, assertions, convergence; nothing here runs in production."""

__all__: list[str] = []
