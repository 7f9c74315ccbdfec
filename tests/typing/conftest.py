"""Keeps pytest away from the files that only the type checker reads."""

collect_ignore = ["cases"]
