"""What people type and see; everything it shows is worked out in the other rooms."""

__all__: list[str] = []
