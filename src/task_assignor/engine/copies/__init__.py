"""Copies (standbys) of items: each on owners of its own."""
