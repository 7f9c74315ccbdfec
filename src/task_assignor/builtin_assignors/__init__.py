"""The assignors that come with the package; they register like anybody's plug-in and use only public rooms."""

__all__: list[str] = []
