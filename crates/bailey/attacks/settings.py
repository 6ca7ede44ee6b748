# K20: settings of the kernel that run a program on the host or stop it, opened for writing and held, not written.
PATHS = ["/proc/sysrq-trigger", "/sys/power/state", "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register",
         "/proc/irq/0/smp_affinity", "/proc/kcore", "/proc/acpi", "/proc/scsi/scsi", "/proc/timer_list",
         "/proc/1/mem"]
held = [attempt(os.open, path, os.O_WRONLY) for path in PATHS]
for top in ("/proc/sys", "/sys", "/proc/irq"):
    for folder, _, names in os.walk(top):
        for name in names:
            held.append(attempt(os.open, os.path.join(folder, name), os.O_WRONLY))
hold()
