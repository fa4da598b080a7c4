"""The settings that can change while the server runs: as a message, as shown to people, and what differs."""

import json
from typing import Any

from headway.core.config import LIVE, Settings

MASK = "***"  # what is shown of a secret


def live_json(settings: Settings) -> str:
    """The live sections, whole, on one line: what `with_changes` takes."""
    return json.dumps(settings.model_dump(mode="json", include=set(LIVE)))


def masked(settings: Settings) -> dict[str, Any]:
    """All settings without their secrets."""
    shown = settings.model_dump(mode="json")
    for holder, name in [
        (shown["server"], "api_key"),
        (shown["server"], "admin_key"),
        *((k, "key") for k in shown["keys"]),
    ]:
        if holder[name] is not None:
            holder[name] = MASK
    return shown


def differences(before: Settings, after: Settings) -> dict[str, str]:
    """Name -> "old -> new" of each value that differs; of keys only whose they are."""
    old, new = masked(before), masked(after)
    found = {}
    for section, values in new.items():
        if section == "keys":
            if before.keys != after.keys:
                found[section] = f"{_tenants(before)} -> {_tenants(after)}"
        elif isinstance(values, dict):
            was, now = getattr(before, section), getattr(after, section)
            for name, value in values.items():
                if getattr(was, name) != getattr(now, name):
                    found[f"{section}.{name}"] = f"{old[section][name]} -> {value}"
        elif old[section] != values:
            found[section] = f"{old[section]} -> {values}"
    return found


def _tenants(settings: Settings) -> str:
    """Secrets are no more than counted: a key that was replaced looks the same."""
    return (
        f"{len(settings.keys)} of {', '.join(sorted({key.tenant for key in settings.keys}))}"
        if settings.keys
        else "none"
    )
