#!/bin/sh
# First program of the guest: put together a root from the host's (read-only, 9p) and a tmpfs, then start the agent.
# /guest/paths is written by the harness: PYTHON, STDLIB, PURELIB, REPOSITORY, MODULES, RELEASE.
/bin/busybox --install -s /bin
. /guest/paths
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /guest/modules); do insmod "/modules/$module" || echo "init: no $module"; done

die() { echo "init: $*"; poweroff -f; }

mkdir -p /lower /cover /root
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /lower || die "no 9p"
mount -t tmpfs -o mode=0755,size=60% cover /cover
mkdir /cover/upper /cover/work
mount -t overlay -o lowerdir=/lower,upperdir=/cover/upper,workdir=/cover/work root /root || die "no overlay"

disk=/dev/disk-of-python
for entry in /sys/block/*; do
    [ "$(cat "$entry/serial" 2>/dev/null)" = liken-python ] && disk=/dev/$(basename "$entry")
done
mkdir -p /root/.python
mount -t ext4 -o ro "$disk" /root/.python || die "no python disk"

for mount in proc sys dev; do mkdir -p "/root/$mount"; mount --move "/$mount" "/root/$mount"; done
mount -t tmpfs -o mode=0755 run /root/run
mount -t tmpfs -o mode=1777 tmp /root/tmp
rm -rf /root/var/run; ln -s /run /root/var/run
mkdir -p /root/dev/shm /root/dev/pts
mount -t devpts devpts /root/dev/pts
mount -t tmpfs -o mode=1777 shm /root/dev/shm
mount -t cgroup2 cgroup /root/sys/fs/cgroup

# What the host has below /tmp or /run is covered now; the checkout or the cache may be there.
for place in "$REPOSITORY" "$MODULES"; do
    [ -d "/root$place" ] || { mkdir -p "/root$place" && mount --bind "/lower$place" "/root$place"; }
done

mkdir -p "/root/lib/modules/$RELEASE"
mount --bind "/root$MODULES" "/root/lib/modules/$RELEASE"
mount --bind /root/.python/stdlib "/root$STDLIB"
mount --bind /root/.python/site-packages "/root$PURELIB"
# The product as it was when the guest was started, compiled, in memory.
mount -t tmpfs -o mode=0755 product /root/mnt
cp -a /guest/product/. /root/mnt/
for part in common services images tests; do mount --bind "/root/mnt/$part" "/root$REPOSITORY/$part"; done

ip link set lo up 2>/dev/null || ifconfig lo 127.0.0.1 up
hostname guest
cp /guest/pid1.sh /guest/paths /root/mnt/
exec switch_root /root /bin/busybox sh /mnt/pid1.sh
