"""From the members' subscriptions to the members' assignments and back; no sockets and no processing of records."""

__all__: list[str] = []
