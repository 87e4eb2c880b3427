"""The watcher: uevents, a quiet moment, one walk of /sys, one inventory on the bus."""
