# The channel behind `sudo`, without its shim, and PID 1 itself: what a program can ask of it, and how it can choke it.
SOCKET = "/run/bailey/sudo.sock"


def line():
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
        end = socket.socket(socket.AF_UNIX, kind)
        end.settimeout(2)
        if not isinstance(attempt(end.connect, SOCKET), BaseException):
            return end
    return None


def say(data, descriptors=()):
    end = line()
    if end is None:
        return None
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"={len(descriptors)}i", *descriptors))] if descriptors else []
    attempt(end.sendmsg, [data], rights)
    return attempt(end.recv, 4096)


null = os.open("/dev/null", os.O_RDWR)
for data in (b"", b"\0" * 4096, b"\xff" * 65536, b"{", b"[" * 60000, b'{"args":["id"]}', b'{"command":["sleep","3600"]}', b"sleep\x003600\0",
             struct.pack("=Q", 1 << 63) + b"x", struct.pack("=I", 0xffffffff), b"GET / HTTP/1.1\r\n\r\n", b"agent\n", b"tcp:22\n", b"egress\n"):
    for descriptors in ((), (null,) * 3, (null,) * 200):
        say(data, descriptors)
crowd = [line() for _ in range(300)]
# Half a message, then silence.
for end in [line() for _ in range(20)]:
    if end is not None:
        attempt(end.send, b"\x40\0\0\0")
for number in range(1, 65):
    attempt(os.kill, 1, number)
    attempt(syscall, 424, attempt(os.pidfd_open, 1), number, 0, 0)
attempt(os.kill, -1, signal.SIGTERM) if "all" in sys.argv else None
for _ in range(3):
    attempt(subprocess.Popen, ["/usr/bin/sudo", "sleep", "3600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
attempt(subprocess.Popen, ["/run/bailey/agent", "init"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
attempt(subprocess.Popen, ["/run/bailey/agent", "collect"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
attempt(subprocess.Popen, ["/proc/1/exe"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(1)
hold()
