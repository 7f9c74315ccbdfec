"""The coordinator, the clients and what they say to each other, as state machines and plain values: no files, sockets, threads, clocks."""
