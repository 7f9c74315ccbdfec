"""Tables and arrays: of which libraries they come, keys and times in them, and the order of records. No files."""
