# F03, F06, F08, F10, F13: what a program can leave in a mounted folder to hurt whoever reads it later.
if "root" in sys.argv:
    as_root()
os.chdir(sys.argv[2] if len(sys.argv) > 2 else "/data")
for name, target in (("to-root", "/"), ("to-etc", "/etc/passwd"), ("up", "../../../../../../etc/passwd"), ("loop", "loop"),
                     ("proc", "/proc/self/root"), ("long", "x" * 4000), ("here", "."), ("there", "..")):
    attempt(os.symlink, target, name)
attempt(os.mkfifo, "fifo")
attempt(lambda: socket.socket(socket.AF_UNIX).bind("socket"))
for name, kind, device in (("memory", stat.S_IFCHR, (1, 1)), ("whiteout", stat.S_IFCHR, (0, 0)), ("disk", stat.S_IFBLK, (8, 0))):
    attempt(os.mknod, name, kind | 0o666, os.makedev(*device))
open("plain", "w").write("plain\n")
attempt(os.link, "plain", "second-name")
attempt(os.link, "/etc/passwd", "hard")
attempt(os.link, "/proc/self/exe", "hard-exe")
for bits in (0o4755, 0o2755, 0o1777, 0o6777, 0o0000):
    name = f"bits-{bits:o}"
    open(name, "w").write("#!/bin/sh\nid\n")
    attempt(os.chmod, name, bits)
os.mkdir("closed")
open("closed/inner", "w").write("inner\n")
attempt(os.chmod, "closed", 0)
os.mkdir("sticky")
attempt(os.chmod, "sticky", 0o7777)
for name in (".wh.plain", ".wh..wh..opq", ".wh..wh.plnk", ".wh."):
    open(name, "w").write("data\n")
os.mkdir("marked")
for name, value in (("user.overlay.opaque", b"y"), ("user.overlay.redirect", b"/etc"), ("trusted.overlay.opaque", b"y"),
                    ("trusted.overlay.redirect", b"/etc"), ("trusted.overlay.metacopy", b""), ("user.hostile", b"x"),
                    ("security.capability", b"\1\0\0\2\xff\xff\xff\xff" + b"\0" * 12), ("system.posix_acl_access", b"\2\0\0\0")):
    for path in ("marked", "plain"):
        attempt(os.setxattr, path, name, value)
for name in (b"new\nline", b"tab\tname", b"\xff\xfe", b"back\\slash", b"trailing ", b"trailing.", b"-rf", b"%2e%2e", b"\x1b[31m",
             b"CON", b"a:b", "．．".encode(), b"n" * 255, b"git~1", b".GIT", ".g\u200cit".encode()):
    attempt(lambda: open(name, "wb").write(name))
os.makedirs(".git/hooks")
open(".git/hooks/post-checkout", "w").write("#!/bin/sh\ntouch /tmp/hook-ran\n")
os.chmod(".git/hooks/post-checkout", 0o755)
open(".git/config", "w").write("[core]\n\tfsmonitor = touch /tmp/hook-ran\n\tsshCommand = touch /tmp/hook-ran\n")
open(".gitmodules", "w").write('[submodule "x"]\n\tpath = ../../x\n\turl = --upload-pack=touch\n')
open(".gitattributes", "w").write("* filter=hostile\n")
attempt(os.truncate, os.open("sparse", os.O_CREAT | os.O_RDWR), (1 << 63) - 1)
attempt(lambda: os.truncate("sparse-big", 0) if os.path.exists("sparse-big") else os.close(os.open("sparse-big", os.O_CREAT)))
attempt(os.truncate, "sparse-big", 1 << 45)
here = os.getcwd()


def deepen():
    for _ in range(400):
        os.mkdir("deep")
        os.chdir("deep")


attempt(deepen)
os.chdir(here)
# A folder of the slice becomes a link, and a file below it a folder.
for name in ("was-folder", "was-file"):
    attempt(subprocess.run, ["rm", "-rf", name])
attempt(os.symlink, "/", "was-folder")
attempt(os.mkdir, "was-file")
attempt(lambda: open("was-file/now", "w").write("now\n"))
# A folder removed and made again must not come back with its old content.
attempt(subprocess.run, ["rm", "-rf", "again"])
attempt(os.mkdir, "again")
attempt(os.rename, "moved-from", "moved-to")
print("left", len(os.listdir(".")))
if "hold" in sys.argv:
    hold()
