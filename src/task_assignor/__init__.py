"""Kafka Streams task assignment (KIP-924) for Python: the front door; nothing is implemented here."""

__version__ = "0.1.0"

__all__ = ["__version__"]
