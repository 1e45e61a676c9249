"""The names that training scripts give to the parts of a checkpoint."""

STATE_KEYS = ("state_dict", "model_state_dict", "model", "net", "params")
"""Where the weights are."""
OPTIMISER_KEYS = (
    "optimizer",
    "optimizer_state_dict",
    "optimiser",
    "optimiser_state_dict",
    "optim",
    "optimizer_states",
)
AVERAGE_KEYS = ("ema", "model_ema", "ema_state_dict", "ema_model", "state_dict_ema", "params_ema")
"""Where a moving average of the weights is."""
WRAPPERS = ("module.", "_orig_mod.", "ema_model.", "shadow.")
"""What DataParallel, torch.compile and helpers for moving averages put before every name."""
_IN_FRONT = {*STATE_KEYS, *AVERAGE_KEYS, *(wrapper[:-1] for wrapper in WRAPPERS)}


def own_name(name: str) -> str:
    """The name that a tensor has in its model.

    >>> own_name("state_dict_ema.module.fc.weight")
    'fc.weight'
    """
    while True:
        first, _, rest = name.partition(".")
        if not rest or first not in _IN_FRONT:
            return name
        name = rest
