# K21: a control group file system, mounted or found, and a release agent on it.
if "root" in sys.argv:
    as_root()
for kind, options in ((b"cgroup", b"rdma"), (b"cgroup", b"memory"), (b"cgroup", b"none,name=hostile"), (b"cgroup2", b"")):
    target = f"/tmp/c-{kind.decode()}-{len(options)}"
    attempt(os.mkdir, target)
    attempt(lambda: libc.mount(b"hostile", target.encode(), kind, 0, options))
attempt(subprocess.run, ["mount", "-t", "cgroup", "-o", "none,name=hostile", "x", "/mnt"], capture_output=True)
for top in ("/sys", "/tmp", "/mnt", "/proc/1/root/sys"):
    for folder, _, names in os.walk(top):
        for name in names:
            if name in ("release_agent", "notify_on_release", "devices.allow", "cgroup.procs", "memory.limit_in_bytes"):
                path = os.path.join(folder, name)
                if isinstance(attempt(os.open, path, os.O_WRONLY), int):
                    print("writable", path)
# The descriptor of its own group that PID 1 holds.
for number in range(64):
    for name in ("cgroup.procs", "pids.max", "cgroup.kill", "../cgroup.procs"):
        if isinstance(attempt(os.open, f"/proc/1/fd/{number}/{name}", os.O_WRONLY), int):
            print("writable", number, name)
hold()
