# K06, K08, K33: single calls that a sandbox has no use for. One that succeeds leaves a mark that the host can see, and
# no more than that: descriptors of what was won are numbered from 200.
import mmap
what = sys.argv[1]


def keep(descriptor):
    if isinstance(descriptor, int) and descriptor >= 0:
        os.dup2(descriptor, 200 + descriptor)


def trace():
    """Traces PID 1, without a stop; then takes its descriptors."""
    child(lambda: syscall(101, 0x4206, 1, 0, 0))
    child(lambda: syscall(101, 16, 1, 0, 0))

    def take():
        handle = os.pidfd_open(1)
        for number in range(32):
            keep(syscall(438, handle, number, 0)[0])
    child(take)


def keys():
    for ring in (-1, -2, -3, -4, -5):
        child(lambda: syscall(248, b"user", b"attest", b"mark", 4, ring))
        child(lambda: syscall(250, 0, ring, 1))
    child(lambda: syscall(250, 1, b"attest"))


def mounts():
    for name in ("/tmp/mark", "/tmp/mark-root"):
        os.makedirs(name, exist_ok=True)
    child(lambda: libc.mount(b"mark", b"/tmp/mark", b"tmpfs", 0, None))
    child(lambda: libc.mount(b"mark", b"/tmp/mark", b"proc", 0, None))
    child(lambda: libc.mount(b"/usr", b"/tmp/mark", None, 4096, None))
    child(lambda: libc.mount(None, b"/proc/sys", None, 32 | 4096, None))
    child(lambda: libc.umount2(b"/proc/sys", 2))
    child(lambda: subprocess.run(["mount", "-t", "tmpfs", "mark", "/tmp/mark"], capture_output=True))
    child(lambda: os.chroot("/tmp/mark-root"))
    child(lambda: syscall(155, b"/tmp", b"/tmp/mark"))


def handles():
    """Files by handle: what a name gives, and root folders of whatever file system lies below."""
    def named():
        handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
        syscall(303, -100, b"/tmp", handle, ctypes.create_string_buffer(8), 0)
        keep(syscall(304, os.open("/tmp", os.O_RDONLY), handle, 0)[0])
    child(named)
    for inode in (1, 2, 5, 64, 128, 256):
        def guessed():
            handle = ctypes.create_string_buffer(struct.pack("=IiQ", 8, 1, inode), 16)
            keep(syscall(304, os.open("/", os.O_RDONLY), handle, 0)[0])
        child(guessed)


def entries():
    """The x32 table by its bit, and the 32-bit entry: a file mode mask shows who got through."""
    def narrow():
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE | 0x22)
        # push rbx; mov eax, 60; mov ebx, 0o123; int 0x80; pop rbx; ret
        page.write(b"\x53\xb8\x3c\x00\x00\x00\xbb\x53\x00\x00\x00\xcd\x80\x5b\xc3")
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    child(narrow)
    child(lambda: syscall(0x40000000 | 95, 0o124))


def clock():
    """Moves the host's clock by ten seconds, or as many as are said, and its name by a word."""
    ahead = int(sys.argv[2]) if len(sys.argv) > 2 else 10

    def then(parts):
        now = time.clock_gettime_ns(time.CLOCK_REALTIME) + ahead * 10**9
        return ctypes.create_string_buffer(struct.pack("=qq", now // 10**9, now % 10**9 * parts // 10**9))
    child(lambda: time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + ahead))
    child(lambda: syscall(164, then(10**6), 0))
    child(lambda: syscall(227, 0, then(10**9)))
    for name in (b"attest-mark", b"attest-mark.example"):
        child(lambda: syscall(170, name, len(name)))
        child(lambda: syscall(171, name, len(name)))


{"trace": trace, "keys": keys, "mounts": mounts, "handles": handles, "entries": entries, "clock": clock}[what]()
hold()
