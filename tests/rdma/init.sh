#!/bin/busybox sh
# First process of the guest: mounts the host's file system, creates Soft-RoCE devices, runs the job.
# tests/rdma/guest.py packs it with busybox, the modules and job/ into the initramfs.

export PATH=/bin:/sbin:/usr/bin:/usr/sbin
/bin/busybox mkdir -p /bin /proc /sys /dev /lower /upper /new
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev

# Prefix of /proc, /sys and /dev: empty at first, later the host's file system.
moved=
# end STATUS: reports the status to the host and ends the machine (QEMU runs with -no-reboot).
end() {
  [ -n "$status_port" ] && echo "$1" > "$moved/dev/$status_port"
  echo b > $moved/proc/sysrq-trigger
  sleep 60
}
# fail WHAT: prints an error to the console, which the host shows.
fail() {
  echo "guest: $1" > $moved/dev/console
  end "failed: $1"
}

for module in /modules/*.ko; do
  insmod "$module" || fail "the module $module does not load"
done

# The ports appear a moment after their module.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  for port in /sys/class/virtio-ports/*; do
    case "$(cat "$port/name" 2>/dev/null)" in
      output) output_port=${port##*/} ;;
      status) status_port=${port##*/} ;;
    esac
  done
  [ -n "$output_port" ] && [ -n "$status_port" ] && break
  usleep 100000
done
[ -n "$output_port" ] || fail "no port for the output"

# The host's file system is read-only; files that the job writes stay in memory.
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose host /lower || fail "no file system of the host"
mount -t tmpfs -o size=80% tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /new || fail "no overlay"
for folder in proc sys dev; do mount --move /$folder /new/$folder; done
moved=/new
mkdir -p /new/dev/shm /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t tmpfs tmpfs /new/run
mount -t devpts devpts /new/dev/pts
if [ -e /job/results ]; then
  results=/new/$(cat /job/results)
  mkdir -p "$results"
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none results "$results" || fail "no folder for results"
fi
mkdir /new/run/job
cp /job/* /new/run/job/

chroot /new /bin/sh /run/job/network > /new/run/job/network.log 2>&1 ||
  fail "no Soft-RoCE device: $(tail -n 1 /new/run/job/network.log)"
echo running > /new/dev/"$status_port"
chroot /new /bin/bash /run/job/command < /new/dev/null > /new/dev/"$output_port" 2>&1
code=$?
sync
end "exit $code"
