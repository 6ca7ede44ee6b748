# K15: device nodes made, found and opened. What could be opened stays open, what could be made stays there.
if "root" in sys.argv:
    as_root()
KINDS = [(stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 2), (stat.S_IFBLK, 8, 0), (stat.S_IFBLK, 254, 0), (stat.S_IFBLK, 7, 0),
         (stat.S_IFCHR, 10, 232), (stat.S_IFCHR, 10, 229), (stat.S_IFCHR, 10, 200), (stat.S_IFCHR, 1, 11), (stat.S_IFCHR, 1, 3)]
for folder in ("/tmp", "/dev", "/dev/shm", "/home/user", "/data", "/run", "/"):
    for kind, major, minor in KINDS:
        path = f"{folder}/node-{kind == stat.S_IFBLK}-{major}-{minor}"
        attempt(os.mknod, path, kind | 0o666, os.makedev(major, minor))
        attempt(os.open, path, os.O_RDWR)
        attempt(os.open, path, os.O_RDONLY)
for name in ("kvm", "fuse", "net/tun", "mem", "kmsg", "port", "vsock", "userfaultfd", "vhost-net", "loop-control", "loop0",
             "vda", "sda", "mapper/control", "cuse", "uinput", "snapshot", "rtc0", "hwrng", "console", "tty0", "ttyS0"):
    attempt(os.open, f"/dev/{name}", os.O_RDWR)
    attempt(os.open, f"/dev/{name}", os.O_RDONLY)
for folder, _, names in os.walk("/dev"):
    for name in names:
        # To open a watchdog is to start it, and this may be a room that is not one.
        if "watchdog" not in name:
            attempt(os.open, os.path.join(folder, name), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
hold()
