"""Figures beside the peers': `make bench` prints them; they never decide a test and are no part of the package."""
