# K10: every family and type. All sockets are kept.
import resource
attempt(resource.setrlimit, resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
for family in range(64):
    for kind in (1, 2, 3, 4, 5, 6, 10):
        attempt(syscall, 41, family, kind, 0)
        attempt(syscall, 53, family, kind, 0, ctypes.create_string_buffer(8))
for family, kind, protocol in ((16, 3, 0), (16, 3, 9), (16, 2, 15), (17, 3, 0x0300), (2, 3, 1), (10, 3, 58), (2, 2, 1), (2, 1, 262)):
    attempt(syscall, 41, family, kind, protocol)
hold()
