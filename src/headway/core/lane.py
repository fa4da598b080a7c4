"""Who goes first: three lanes, as OpenAI's `service_tier` names them."""

from enum import IntEnum


class Lane(IntEnum):
    """Lower goes first. PRIORITY and DEFAULT are interactive: the promise is for them. FLEX fills what they leave."""

    PRIORITY = 0
    DEFAULT = 1
    FLEX = 2

    @property
    def label(self) -> str:
        """As `service_tier`, the configuration and the metrics spell it."""
        return self.name.lower()


LANES = {lane.label: lane for lane in Lane}
