# Does nothing but wait, as a well-behaved program with one child does.
if os.fork() == 0:
    while True:
        time.sleep(3600)
hold()
