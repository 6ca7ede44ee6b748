# F03, F08, F13: links out of a mounted folder, and what no tree may hold. Arguments: files of the host that were told.
os.chdir("/data")
for number, path in enumerate(sys.argv[1:]):
    attempt(os.symlink, path, f"link-{number}")
    attempt(os.symlink, os.path.dirname(path), f"link-folder-{number}")
    attempt(os.symlink, "../" * 24 + path.lstrip("/"), f"link-up-{number}")
    attempt(os.link, path, f"link-hard-{number}")
attempt(os.symlink, "/proc/self/root", "link-root")
attempt(os.symlink, "/etc/passwd", "link-passwd")
# A folder of the tree becomes a link.
attempt(subprocess.run, ["rm", "-rf", "folder"])
attempt(os.symlink, "/etc", "folder")
for name, kind, number in (("memory", stat.S_IFCHR, (1, 1)), ("disk", stat.S_IFBLK, (8, 0)), ("whiteout", stat.S_IFCHR, (0, 0))):
    attempt(os.mknod, name, kind | 0o666, os.makedev(*number))
attempt(os.mkfifo, "fifo")
open("bits", "w").write("#!/bin/sh\n")
attempt(os.chmod, "bits", 0o6755)
open("left", "w").write("left\n")
# For whoever looks at what was made before it is gone.
if os.environ.get("HOLD"):
    hold()
