"""State stores: what a task remembers, how it changes, and how it becomes snapshots. Who decides when is elsewhere."""
