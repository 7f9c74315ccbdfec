"""What an author of an assignor builds with: standbys, rack awareness, refining; whole assignors live elsewhere."""

__all__: list[str] = []
