# K25, K26: two programs that meet. `keep NONCE` leaves its nonce wherever a neighbour could look; `seek` looks there,
# and does harm to whatever it can reach.
import mmap
KEY = 0x1234


def shm(size, flags):
    libc.shmat.restype = ctypes.c_void_p
    return libc.shmat(libc.shmget(KEY, size, flags), None, 0)


def keep(nonce):
    secret = nonce.encode()
    for path in ("/dev/shm/hostile", "/tmp/hostile", "/var/tmp/hostile", os.path.expanduser("~/hostile")):
        attempt(lambda: open(path, "wb").write(secret))
    # A queue and a semaphore of the same name.
    attempt(libc.msgget, KEY, 0o1666)
    attempt(libc.semget, KEY, 1, 0o1666)
    address = shm(4096, 0o1666)
    if address not in (None, ctypes.c_void_p(-1).value):
        ctypes.memmove(address, secret, len(secret))
    listeners = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_INET)]
    listeners[1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Outside, someone else may have the name.
    attempt(listeners[0].bind, "\0hostile")
    attempt(listeners[1].bind, ("127.0.0.1", 7777))

    def serve(listener):
        listener.listen()
        while True:
            listener.accept()[0].sendall(secret)
    for listener in listeners:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    heap = [secret * 64 for _ in range(64)]
    hold()


def memory_of(pid):
    for line in open(f"/proc/{pid}/maps"):
        low, high = (int(part, 16) for part in line.split()[0].split("-"))
        if "r" in line.split()[1] and high - low < 1 << 26 and "[v" not in line:
            with open(f"/proc/{pid}/mem", "rb") as memory:
                memory.seek(low)
                yield attempt(memory.read, high - low)
            space = ctypes.create_string_buffer(high - low)
            own = struct.pack("=QQ", ctypes.addressof(space), high - low)
            attempt(syscall, 310, pid, ctypes.create_string_buffer(own, 16), 1,
                    ctypes.create_string_buffer(struct.pack("=QQ", low, high - low), 16), 1, 0)
            yield space.raw


def seek(pids):
    for path in ("/dev/shm/hostile", "/tmp/hostile", "/var/tmp/hostile", os.path.expanduser("~/hostile")):
        print(attempt(lambda: open(path, "rb").read()))
    address = shm(0, 0)
    if address not in (None, ctypes.c_void_p(-1).value):
        print(ctypes.string_at(address, 4096))
    for family, name in ((socket.AF_UNIX, "\0hostile"), (socket.AF_INET, ("127.0.0.1", 7777))):
        def ask():
            with socket.socket(family) as line:
                line.settimeout(1)
                line.connect(name)
                return line.recv(4096)
        print(attempt(ask))
    for pid in pids:
        attempt(lambda: [print(found) for part in memory_of(pid) if isinstance(part, bytes)
                         for found in set(re.findall(b"c[n]ry-[0-9a-f]{64}", part))])
        attempt(syscall, 101, 16, pid, 0, 0)
        for number in (signal.SIGKILL, signal.SIGSTOP):
            attempt(os.kill, pid, number)
        attempt(os.killpg, pid, signal.SIGKILL)
    hold()


if sys.argv[1] == "keep":
    keep(sys.argv[2])
# Not itself, and not the shim that waits for it: their end would be its own.
mine = {os.getpid(), os.getppid()}


def own(pid):
    command = attempt(lambda: open(f"/proc/{pid}/cmdline", "rb").read())
    return pid in mine or isinstance(command, bytes) and command.startswith(b"sudo")


seek([int(pid) for pid in sys.argv[2:] if not own(int(pid))])
