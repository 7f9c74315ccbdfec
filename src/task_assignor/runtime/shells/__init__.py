"""What carries out what the machines decide: sockets, processes, threads, clocks. Nothing is decided here."""
