# K20: kernel settings that run a program on the host, or stop it. Then a crash that such a program would handle.
if "root" in sys.argv:
    as_root()
PATHS = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/proc/sys/kernel/domainname",
         "/proc/sys/kernel/hostname", "/proc/sys/fs/suid_dumpable", "/proc/sys/net/ipv4/ip_forward", "/sys/kernel/uevent_helper",
         "/proc/sys/kernel/core_pipe_limit", "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/ns_last_pid"]
for path in [path for path in PATHS if not sys.argv[2:] or path in sys.argv[2:]]:
    write(path, b"|/tmp/hostile\n")
    write(path, b"7\n")
if not sys.argv[2:]:
    # Nothing here may even be opened for writing; what is written would be harmless.
    for path in ["/proc/sysrq-trigger", "/sys/power/state", "/proc/sys/fs/binfmt_misc/register", "/proc/irq/0/smp_affinity",
                 "/proc/timer_list", "/proc/kcore", "/proc/self/oom_score_adj", "/proc/acpi", "/proc/scsi/scsi"]:
        descriptor = attempt(os.open, path, os.O_WRONLY)
        if isinstance(descriptor, int):
            print("writable", path)
    for _ in range(20):
        child(lambda: os.kill(os.fork() or os.getpid(), signal.SIGSEGV))
hold()
