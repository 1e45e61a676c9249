"""How pixels may be brought to one scale: the words that a request, a preparation and a file have for it."""

from typing import Literal

Standardise = Literal["subset", "channels", "none", "cifar10-split"]
Norm = Literal["sqrt-d", "keep"]
