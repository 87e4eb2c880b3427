"""What earlier boots left: their records promise nothing any more, and their specs name other hardware."""

import logging

from common.errors import MachineError
from common.prepared import Prepared

log = logging.getLogger(__name__)

LOCK_S = 30.0


def remove_other_boots(prepared: Prepared) -> None:
    """Remove other boots' records with their specs, and temporary files of killed processes. Never raises."""
    try:
        for boot, uids in sorted(prepared.store.other_boots().items()):
            with prepared.store.lock(LOCK_S):
                for uid in uids:
                    # our other instance may have prepared the same claim again in this boot
                    if prepared.store.read(uid) is None:
                        prepared.specs.remove(uid)
                prepared.store.remove_boot(boot)
            log.info("removed %d records of the boot %s", len(uids), boot)
        with prepared.store.lock(LOCK_S):
            prepared.store.sweep()
            prepared.specs.sweep()
    except MachineError as error:
        log.error("leftovers of earlier boots stay: %s", error)
