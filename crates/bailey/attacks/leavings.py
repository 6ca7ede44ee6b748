# T06: everything that a run could leave for the one that gets its sandbox after it.
nonce = sys.argv[1]
home = os.path.expanduser("~")
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", home, "/data", "/mnt", "/var/spool/cron", "/etc/cron.d"):
    attempt(lambda: open(f"{folder}/left", "w").write(nonce))
for name in (".bashrc", ".profile", ".gitconfig", ".config/x"):
    attempt(lambda: open(f"{home}/{name}", "a").write(f"# {nonce}\n"))
attempt(lambda: open("/etc/ld.so.preload", "w").write("/tmp/left.so\n"))
attempt(lambda: open("/etc/passwd", "a").write(f"# {nonce}\n"))
attempt(syscall, 248, b"user", b"left", nonce.encode(), len(nonce), -4)
attempt(lambda: libc.shmget(0x1234, 4096, 0o1666))
attempt(lambda: socket.sethostname("left-" + nonce[5:20]))
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        blob = [nonce.encode() * 100 for _ in range(1000)]
        while True:
            time.sleep(1)
    os._exit(0)
hoard = [nonce.encode() * 1000 for _ in range(500)]
os.environ["LEFT"] = nonce
print("done", len(hoard))
