"""The log that is a folder of Arrow files: what a topic is, its files, how they are written and read."""
