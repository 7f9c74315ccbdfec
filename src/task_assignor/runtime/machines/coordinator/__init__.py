"""The coordinator: who is there, who does what, what counts."""
