"""`format`s of JSON Schema as patterns, where llguidance's own let through what is none or refuse what is one."""

from typing import Any

_LEAP_YEAR = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_LONG_MONTH = r"(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
_SHORT_MONTH = r"(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
_DATE = rf"(?:{_LEAP_YEAR}-02-29|\d{{4}}-(?:02-(?:0[1-9]|1\d|2[0-8])|{_LONG_MONTH}|{_SHORT_MONTH}))"
_HOUR = r"(?:[01]\d|2[0-3])"
_FRACTION = r"(?:\.\d+)?"
_PLAIN_TIME = rf"{_HOUR}:[0-5]\d:[0-5]\d{_FRACTION}(?:[Zz]|[+-]{_HOUR}:[0-5]\d)"


def _leap_seconds() -> str:
    """The last second of a day in UTC (RFC 3339, 5.7), told in UTC or at offsets of quarters of an hour."""
    offsets = [60 * hour + minute for hour in range(24) for minute in (0, 15, 30, 45)]
    told = [f"23:59:60{_FRACTION}[Zz]"]
    for sign, direction in (("[+]", 1), ("-", -1)):
        for offset in offsets:
            hour, minute = divmod((23 * 60 + 59 + direction * offset) % (24 * 60), 60)
            told.append(f"{hour:02}:{minute:02}:60{_FRACTION}{sign}{offset // 60:02}:{offset % 60:02}")
    return "|".join(told)


_TIME = rf"(?:{_PLAIN_TIME}|{_leap_seconds()})"

_IPV4 = r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_H16 = "[0-9A-Fa-f]{1,4}"
_LAST = rf"(?:{_H16}:{_H16}|{_IPV4})"
# RFC 3986, section 3.2.2.
_IPV6 = "|".join(
    [
        f"(?:{_H16}:){{6}}{_LAST}",
        f"::(?:{_H16}:){{5}}{_LAST}",
        *[f"(?:(?:{_H16}:){{0,{n}}}{_H16})?::(?:{_H16}:){{{4 - n}}}{_LAST}" for n in range(5)],
        f"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        f"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    ]
)

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_DOMAIN_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_DOMAIN = rf"(?:{_DOMAIN_LABEL}(?:\.{_DOMAIN_LABEL})*|\[(?:{_IPV4}|IPv6:(?:{_IPV6}))\])"

# Instead of llguidance's.
_OWN = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[Tt]{_TIME}",
    "ipv6": _IPV6,
    "email": rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@{_DOMAIN}",
}

# Beside llguidance's, which takes punycode that stands for nothing. Which of it stands for something is in tables of
# Unicode that no pattern holds, so that no name has any.
_LABEL = r"(?:[A-Za-z0-9-]{1,3}|[A-Za-z0-9-]{2}(?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]*)"
_HOSTNAME = {"pattern": rf"^{_LABEL}(?:\.{_LABEL})*$", "maxLength": 253}


def has_format(part: Any) -> bool:
    """Whether `kept` changes it."""
    name = part.get("format") if isinstance(part, dict) else None
    return isinstance(name, str) and (name in _OWN or name == "hostname")


def keep_format(part: dict[str, Any]) -> None:
    """Writes a schema's `format` out as a pattern."""
    kept = _HOSTNAME if part["format"] == "hostname" else {"pattern": f"^(?:{_OWN[part.pop('format')]})$"}
    part["allOf"] = [*part.get("allOf", []), kept]
