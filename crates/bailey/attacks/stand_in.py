# The weakened arm of O1: a stand-in for a process that serves an API and runs code as its child. It holds a nonce in
# its environment, its memory, a file of its own and a shared segment; the hunter's text is its last argument.
heap = [sys.argv[1].encode() * 32 for _ in range(32)]
os.environ["API_KEY"] = sys.argv[2]
with open("/tmp/own-file", "w") as out:
    out.write(sys.argv[3])
os.chmod("/tmp/own-file", 0o600)
libc.shmat.restype = ctypes.c_void_p
address = libc.shmat(libc.shmget(0x1234, 4096, 0o1666), None, 0)
ctypes.memmove(ctypes.c_void_p(address), sys.argv[4].encode(), len(sys.argv[4]))
hunter = sys.argv[5]
sys.stdout.flush()
# The hunter must find the nonces in its parent, not in its own arguments.
subprocess.run(["python3", "-c", hunter, "/tmp/own-file"])
