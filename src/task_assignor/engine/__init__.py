"""Items to owners: who gets what, in what number and why. It knows neither tasks nor Kafka."""

__all__: list[str] = []
