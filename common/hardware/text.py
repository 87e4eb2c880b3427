"""Text from the kernel and from devices: bytes that may be anything."""

import unicodedata

PAGE = 4096  # bytes; the kernel gives no more for an attribute, a recording may hold anything
MAX_BYTES = 64  # one string attribute of a ResourceSlice device; Kubernetes API limit, in UTF-8 bytes
# Unicode categories dropped from text: control, format, surrogate, and the line
# and paragraph separators.
_DROPPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def clean(content: bytes) -> str:
    """Bytes of a sysfs file as printable text: decoded with replacement, control signs dropped, trimmed."""
    content = content[:PAGE]
    if content.isascii():
        text = content.decode("ascii").strip()
        if text.isprintable():
            return text
    else:
        text = content.decode("utf-8", "replace")
    return "".join(sign for sign in text if unicodedata.category(sign) not in _DROPPED).strip()


def cut(text: str, limit: int = MAX_BYTES) -> str:
    """`text` shortened to at most `limit` bytes of UTF-8, at a character border, without trailing space."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    return encoded[:limit].decode("utf-8", "ignore").rstrip()


def fits(text: str, limit: int = MAX_BYTES) -> bool:
    """True when `text` can be an attribute as it is; an identifier that does not fit is left out, not cut."""
    return len(text.encode("utf-8", "replace")) <= limit


def uevent(content: bytes | None) -> dict[str, str]:
    """The KEY=VALUE lines of a `uevent` file. Lines without "=" are skipped."""
    if not content:
        return {}
    pairs = (line.partition(b"=") for line in content.split(b"\n") if b"=" in line)
    return {key.decode("utf-8", "replace"): value.decode("utf-8", "replace") for key, _, value in pairs}
