"""The command line of a script."""
