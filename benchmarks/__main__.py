"""`python -m benchmarks`."""

from benchmarks.command import main

if __name__ == "__main__":
    raise SystemExit(main())
