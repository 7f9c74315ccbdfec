"""The client: what its tasks do next."""
