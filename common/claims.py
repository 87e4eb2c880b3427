"""The records of prepared claims: the only state liken keeps."""

import msgspec


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One allocated device of one claim, as it was promised at prepare.

    Holds no path and no number that the kernel may give away.
    """

    request: str
    pool: str
    device: str
    bus: str
    address: str
    physicalPath: str = ""  # noqa: N815 - the word of the attribute; "" where the hardware has none
    variant: str = ""
    kinds: tuple[str, ...] = ()
    shareID: str = ""  # noqa: N815 - the word of the ResourceClaim API
    adminAccess: bool = False  # noqa: N815 - the word of the ResourceClaim API


class Record(msgspec.Struct, frozen=True):
    """One prepared claim, at <plugin folder>/claims/<boot id>/<uid>.json."""

    schema: int
    namespace: str
    name: str
    uid: str
    results: tuple[Result, ...]
