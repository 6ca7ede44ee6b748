# N01: what listens on the host: `tcp HOST PORT`, `udp HOST PORT`, `unix NAME` as arguments of three words or two; `@`
# begins an abstract name.
words = sys.argv[1:]


def reach(family, kind, address):
    with socket.socket(family, kind) as end:
        end.settimeout(1)
        end.connect(address)
        end.send(b"reached")


while words:
    kind, name = words[0], words[1]
    if kind == "unix":
        words = words[2:]
        address = "\0" + name[1:] if name.startswith("@") else name
        attempt(reach, socket.AF_UNIX, socket.SOCK_STREAM, address)
        attempt(reach, socket.AF_UNIX, socket.SOCK_DGRAM, address)
        continue
    port, words = int(words[2]), words[3:]
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    attempt(reach, family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM, (name, port))
hold()
