"""What exhume says when it cannot go on: one line with what was expected, what was found, and what to do."""


class ExhumeError(Exception):
    """Something outside the program stands in the way (a file, the data, the disk). Exit code 1."""

    exit_code = 1


class UsageError(ExhumeError):
    """The request itself is wrong (a flag, a name, a number out of range). Exit code 2."""

    exit_code = 2
