# K05 and its kin: every call that answers with a descriptor of a kind that a sandbox has no use for. All are kept.
if "root" in sys.argv:
    as_root()


def u32(*values):
    return struct.pack(f"={len(values)}I", *values)


def buffer(data, size=128):
    return ctypes.create_string_buffer(data, size)


tries = [
    (425, 8, buffer(b"")), (425, 1, buffer(struct.pack("=II I", 0, 0, 2))),  # io_uring_setup, plain and with a poller
    (323, 0), (323, 1), (323, 0o4000),                                       # userfaultfd
    (298, buffer(u32(1, 128)), 0, -1, -1, 0), (298, buffer(u32(0, 128)), -1, 0, -1, 0),  # perf_event_open
    (321, 0, buffer(u32(2, 4, 4, 1)), 72), (321, 0, buffer(u32(1, 4, 4, 1)), 72),        # bpf: two kinds of map
    (300, 0, 0), (300, 0x200, 0),                                            # fanotify_init
    (447, 0),                                                                # memfd_secret
    (430, b"tmpfs", 0), (430, b"overlay", 0), (430, b"cgroup2", 0),          # fsopen
    (433, -100, b"/", 0),                                                    # fspick
    (428, -100, b"/", 1),                                                    # open_tree, a detached copy
]
# In a child each: some calls end their caller.
for number, *args in tries:
    child(lambda: syscall(number, *args))
# A descriptor of PID 1: by pidfd, by /proc, by asking a name of it.
for target in (1, os.getppid()):
    handle = attempt(os.pidfd_open, target)
    for number in range(32):
        if isinstance(handle, int):
            attempt(syscall, 438, handle, number, 0)
        attempt(os.open, f"/proc/{target}/fd/{number}", os.O_RDWR)
    for name in ("mem", "exe", "environ", "pagemap"):
        attempt(os.open, f"/proc/{target}/{name}", os.O_RDONLY)
hold()
