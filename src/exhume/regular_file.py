"""Files that are opened are files: a pipe or a device would wait for somebody to write, for ever."""

import errno
import stat
from pathlib import Path

_OTHERS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def regular(path: Path) -> Path:
    """The same path; an OSError where it leads to something that is neither a file nor a folder, nor absent.

    >>> regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] a device, not a file: '/dev/null'
    """
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except (OSError, ValueError):  # whoever opens it says what is wrong
        return path
    if kind in _OTHERS:
        raise OSError(errno.EINVAL, f"{_OTHERS[kind]}, not a file", str(path))
    return path
