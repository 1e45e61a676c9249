"""The command line: parses and calls; the work is elsewhere. Modules that need torch are imported inside commands, so
that `exhume gauge` and every `--help` answer at once."""

from exhume.cli.app import main

__all__ = ["main"]
