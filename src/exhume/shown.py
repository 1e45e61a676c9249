"""How results show themselves: one line in a REPL, a small table in a notebook. Neither holds recovered data."""

from html import escape


class Shown:
    """A result with `_lines`: what is said of it, by name. Values that are None are left out."""

    def _lines(self) -> dict[str, str | int | float | None]:
        raise NotImplementedError

    def _remark(self) -> str:
        """A sentence for below the table."""
        return ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._texts().items())})"

    def _repr_html_(self) -> str:
        """
        >>> class Found(Shown):
        ...     def _lines(self): return {"method": "<b>", "held_out_loss": 1.23456e-7, "samples": None}
        >>> Found(), Found()._repr_html_().count("&lt;b&gt;")
        (Found(method=<b>, held_out_loss=1.23e-07), 1)
        """
        rows = "".join(
            f'<tr><th style="text-align:left">{escape(name.replace("_", " "))}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in self._texts().items()
        )
        remark = f"<p>{escape(self._remark())}</p>" if self._remark() else ""
        return f"<table><thead><tr><th colspan=2>{type(self).__name__}</th></tr></thead>{rows}</table>{remark}"

    def _texts(self) -> dict[str, str]:
        return {name: _text(value) for name, value in self._lines().items() if value is not None}


def _text(value: str | int | float | None) -> str:
    return f"{value:.3g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
