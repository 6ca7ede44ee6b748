# R01, R03, R05, R06, R11, R24, R25, K23: more of everything than there is.
import mmap
hoard = []
what, most = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 60


def fork():
    """Every process forks as fast as it can."""
    count = 0
    while count < most:
        try:
            if os.fork() == 0:
                if most < 1 << 60:
                    time.sleep(3600)
        except OSError:
            time.sleep(0.001)
        count += 1


def memory():
    for _ in range(4):
        if most == 1 << 60 and os.fork() == 0:
            break
    while sum(map(len, hoard)) < most:
        hoard.append(bytearray(b"x") * (1 << 24))


def disk():
    """Files that grow and holes that are filled; then the same through a second name."""
    written = 0
    with open("/data/grow" if os.path.isdir("/data") and os.access("/data", os.W_OK) else "/tmp/grow", "wb", 0) as out:
        while written < most:
            written += out.write(b"x" * (1 << 20))
    print("written", written)


def inodes():
    for number in range(most):
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
    print("made", number)


def output():
    block = b"o" * 65536
    sent = 0
    while sent < most:
        sent += os.write(1, block)
        os.write(2, b"e" * 1024)


def orphans():
    for _ in range(most):
        try:
            if os.fork() == 0:
                if os.fork() == 0:
                    os._exit(0)
                os._exit(0)
            os.wait()
        except OSError:
            time.sleep(0.01)
    time.sleep(0.5)
    hold()


def sockets():
    """Datagrams that nobody reads, in as many sockets as there are descriptors."""
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    while len(hoard) < most:
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver.bind(("127.0.0.1", 0))
        hoard.append(receiver)
        for _ in range(8):
            attempt(sender.sendto, b"x" * 60000, receiver.getsockname())


def pipes():
    """Pipes that are full, in as many processes as that takes."""
    for _ in range(24):
        if os.fork() == 0:
            break
    while len(hoard) < most:
        hoard.append(os.pipe())
        os.set_blocking(hoard[-1][1], False)
        while attempt(os.write, hoard[-1][1], b"x" * 4096) == 4096:
            pass


def pagetables():
    """Reads of memory that nobody has written: each takes a table, and no page."""
    space = mmap.mmap(-1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
    hoard.append(space)
    attempt(space.madvise, 15)
    for at in range(0, min(most, 1 << 40), 1 << 21):
        space[at]


def spin():
    for _ in range(most - 1):
        if os.fork() == 0:
            break
    print("ready", flush=True)
    while True:
        pass


attempt({"pagetables": pagetables, "pipes": pipes, "spin": spin, "fork": fork, "memory": memory, "disk": disk, "inodes": inodes, "output": output, "orphans": orphans, "sockets": sockets}[what])
hold()
