"""Where Spark comes in: launchers that run Streams clients as Spark tasks; the machines they run live in `runtime`."""

__all__: list[str] = []
