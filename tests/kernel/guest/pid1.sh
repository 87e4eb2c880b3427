#!/bin/sh
# Process 1 of the guest: keeps the agent alive and buries orphans, as a shell that waits does.
. /mnt/paths
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONPATH="$REPOSITORY"
cd "$REPOSITORY" || exit 1
while :; do
    "$PYTHON" -P -m tests.kernel.guest.agent
    echo "pid1: the agent ended"
    sleep 1
done
