"""What must be Kafka's decision for decision: queue orders, least loaded, default standbys, staging, threads. Nothing else."""

__all__: list[str] = []
