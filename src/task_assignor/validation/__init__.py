"""Says whether an assignment is right: Kafka's first error, and a report of every violation; it repairs nothing."""

__all__: list[str] = []
