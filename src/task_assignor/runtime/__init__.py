"""Executes tasks as state machines: coordinator, clients, stores, changelogs; knows neither Spark nor Kafka."""

__all__: list[str] = []
