"""Names of published devices: DNS labels made of bus and address, and nothing else."""

import hashlib
import re
from collections.abc import Iterable

MAX_NAME = 63  # DNS label; Kubernetes API limit for device names
HASH_DIGITS = 8
_OTHER = re.compile(r"[^a-z0-9]")


def device_name(bus: str, address: str, variant: str = "", hashed: bool = False) -> str:
    """`<bus>-<address>[-<variant>]` as a label of at most 63 characters.

    Lowercase; every other character than a-z0-9 becomes "-", runs are kept, ends trimmed. A longer one, or
    one asked for with `hashed`, is cut and ends in "-" and 8 hex digits of SHA-256 of `<bus>/<address>`,
    before the variant's suffix.
    """
    base = _OTHER.sub("-", f"{bus}-{address}".lower()).strip("-")
    suffix = f"-{variant_label(variant)}" if variant else ""
    if base and not hashed and len(base) + len(suffix) <= MAX_NAME:
        return base + suffix
    digest = hashlib.sha256(f"{bus}/{address}".encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    room = MAX_NAME - HASH_DIGITS - 1 - len(suffix)
    return f"{base[: max(room, 0)]}-{digest}{suffix}".lstrip("-")


def variant_label(kind: str) -> str:
    """A kind as the suffix of a companion's name: drm_dp_aux_dev gives drm-dp-aux-dev."""
    return _OTHER.sub("-", kind.lower()).strip("-")[:MAX_VARIANT].strip("-")


MAX_VARIANT = 32  # leaves room for the hash and a piece of the address; the kernel's words are shorter


def assign_names(slots: Iterable[tuple[str, str, tuple[str, ...]]]) -> dict[tuple[str, str], bool]:
    """Which hardware takes the hash form because its name is taken: (bus, address) -> hashed.

    `slots`: bus, address and the variants of every piece of hardware. The one that sorts second by (bus,
    address) gives way.
    """
    taken: set[str] = set()
    hashed: dict[tuple[str, str], bool] = {}
    for bus, address, variants in sorted(slots):
        names = {device_name(bus, address, variant) for variant in variants}
        clash = not names.isdisjoint(taken)
        if clash:
            names = {device_name(bus, address, variant, hashed=True) for variant in variants}
        taken |= names
        hashed[bus, address] = clash
    return hashed
