# R10: processes that do not want to end, in every way that a process has.
for number in range(1, 65):
    attempt(signal.signal, number, signal.SIG_IGN)


def spin():
    while True:
        pass


def session():
    os.setsid()
    if os.fork() == 0:
        spin()


def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            attempt(os.chdir, "/")
            os.closerange(0, 64)
            spin()
        os._exit(0)


def again():
    """Starts itself anew whenever its watched child dies, and watches from a session of its own."""
    os.setsid()
    while True:
        pid = os.fork()
        if pid == 0:
            spin()
        os.waitpid(pid, 0)


for act in (session, daemon, again, lambda: os.kill(os.getpid(), signal.SIGSTOP), lambda: threading.Thread(target=spin).start()):
    if os.fork() == 0:
        act()
        while True:
            time.sleep(3600)
attempt(lambda: os.nice(19))
time.sleep(0.2)
print("ready", flush=True)
spin()
