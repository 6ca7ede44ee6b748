# K03: every way to a namespace of one's own. A child that got one stays in it, for the host to see.
NEW = {"time": 0x80, "mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000,
       "pid": 0x20000000, "net": 0x40000000}


def clone(flags):
    if syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0)[0] == 0:
        while True:
            time.sleep(3600)


def clone3(flags):
    args = ctypes.create_string_buffer(struct.pack("=11Q", flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0), 88)
    if syscall(435, args, 88)[0] == 0:
        while True:
            time.sleep(3600)


def setns(target):
    for kind in NEW:
        attempt(lambda: syscall(308, os.open(f"/proc/{target}/ns/{kind}", os.O_RDONLY), 0))


everything = sum(NEW.values())
for flags in list(NEW.values()) + [NEW["user"] | flag for flag in NEW.values()] + [everything]:
    child(lambda: libc.unshare(flags))
    child(lambda: clone(flags & ~0x80))
    child(lambda: clone3(flags))
for target in (1, "self", os.getppid()):
    child(lambda: setns(target))
child(lambda: subprocess.Popen(["unshare", "-Ur", "sleep", "3600"]))
child(lambda: subprocess.Popen(["unshare", "-Urmpfn", "--mount-proc", "sleep", "3600"]))
child(lambda: attempt(lambda: libc.unshare(NEW["user"])) or write("/proc/self/uid_map", b"0 0 4294967295\n"))
time.sleep(0.3)
hold()
