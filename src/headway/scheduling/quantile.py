"""A running quantile that needs no memory."""


class Quantile:
    """Climbs when a value lies above it and falls when one lies below, by steps that balance at `share` (Robbins and
    Monro 1951). One wild value moves it by no more than any other."""

    def __init__(self, share: float, value: float, step: float) -> None:
        """`step`: how far a value above and a value below move it apart."""
        self.value = value
        self._share = share
        self._step = step

    def observe(self, value: float, scale: float = 1.0) -> None:
        """`scale` multiplies the step."""
        self.value += self._step * scale * (self._share if value > self.value else self._share - 1.0)
