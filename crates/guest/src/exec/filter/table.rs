//! Which system calls the code in a sandbox may make: the whole table.
//!
//! Three answers, strictest wins. [`ALLOW`]: the call is run; whatever it does not hold is `ENOSYS`, so that
//! libraries fall back as on an older kernel. [`DENY`]: `EPERM`, for calls whose callers should say "not permitted",
//! and for single options of allowed calls. [`KILL`]: the process ends, for calls that no honest program makes
//! (with calls of another architecture and of x32). Only the low 32 bits of arguments are compared.
//!
//! To allow a call: add a line, say why if its arguments are checked, run the sweep tests (K06, K35). The list may
//! only hold what language runtimes, shells and build tools need (K36); 200 names are the limit.

use bailey_sys::seccomp::Check::{self, Is, Masked, Not};
use bailey_sys::seccomp::Row;

/// Flags of `clone` that make a namespace.
pub const NAMESPACE_FLAGS: u32 = 0x7E02_0000;

const fn any(number: i64) -> Row {
    Row { number, when: &[] }
}

const fn only(number: i64, when: &'static [&'static [Check]]) -> Row {
    Row { number, when }
}

/// Calls that are run.
#[rustfmt::skip]
pub const ALLOW: &[Row] = &[
    // Files and folders. Not `sync`, which writes back the disks of the whole host; nothing looks at its answer.
    any(libc::SYS_read), any(libc::SYS_write), any(libc::SYS_open), any(libc::SYS_close), any(libc::SYS_stat),
    any(libc::SYS_fstat), any(libc::SYS_lstat), any(libc::SYS_lseek), any(libc::SYS_pread64), any(libc::SYS_pwrite64),
    any(libc::SYS_readv), any(libc::SYS_writev), any(libc::SYS_access), any(libc::SYS_sendfile), any(libc::SYS_fcntl),
    any(libc::SYS_flock), any(libc::SYS_fsync), any(libc::SYS_fdatasync), any(libc::SYS_truncate),
    any(libc::SYS_ftruncate), any(libc::SYS_getcwd), any(libc::SYS_chdir),
    any(libc::SYS_fchdir), any(libc::SYS_rename), any(libc::SYS_mkdir), any(libc::SYS_rmdir), any(libc::SYS_creat),
    any(libc::SYS_link), any(libc::SYS_unlink), any(libc::SYS_symlink), any(libc::SYS_readlink), any(libc::SYS_chmod),
    any(libc::SYS_fchmod), any(libc::SYS_chown), any(libc::SYS_fchown), any(libc::SYS_lchown), any(libc::SYS_umask),
    any(libc::SYS_statfs), any(libc::SYS_fstatfs),
    any(libc::SYS_setxattr), any(libc::SYS_lsetxattr), any(libc::SYS_fsetxattr), any(libc::SYS_getxattr),
    any(libc::SYS_lgetxattr), any(libc::SYS_fgetxattr), any(libc::SYS_listxattr), any(libc::SYS_llistxattr),
    any(libc::SYS_flistxattr),
    any(libc::SYS_getdents64), any(libc::SYS_fadvise64),
    any(libc::SYS_openat), any(libc::SYS_mkdirat), any(libc::SYS_fchownat),
    any(libc::SYS_newfstatat), any(libc::SYS_unlinkat), any(libc::SYS_renameat), any(libc::SYS_linkat),
    any(libc::SYS_symlinkat), any(libc::SYS_readlinkat), any(libc::SYS_fchmodat), any(libc::SYS_faccessat),
    any(libc::SYS_utimensat), any(libc::SYS_fallocate), any(libc::SYS_preadv),
    any(libc::SYS_pwritev), any(libc::SYS_renameat2), any(libc::SYS_copy_file_range),
    any(libc::SYS_statx),
    any(libc::SYS_faccessat2),
    // Files, pipes and sockets; no device nodes, and so no whiteouts of an overlay either.
    only(libc::SYS_mknod, &[&[Masked(1, 0xF000, 0)], &[Masked(1, 0xF000, 0x8000)], &[Masked(1, 0xF000, 0x1000)], &[Masked(1, 0xF000, 0xC000)]]),
    only(libc::SYS_mknodat, &[&[Masked(2, 0xF000, 0)], &[Masked(2, 0xF000, 0x8000)], &[Masked(2, 0xF000, 0x1000)], &[Masked(2, 0xF000, 0xC000)]]),
    // Descriptors and waiting on them.
    any(libc::SYS_poll), any(libc::SYS_pipe), any(libc::SYS_select), any(libc::SYS_dup), any(libc::SYS_dup2),
    any(libc::SYS_pselect6), any(libc::SYS_ppoll), any(libc::SYS_epoll_wait),
    any(libc::SYS_epoll_ctl), any(libc::SYS_epoll_pwait), any(libc::SYS_epoll_create1),
    any(libc::SYS_eventfd2), any(libc::SYS_signalfd4), any(libc::SYS_timerfd_create),
    any(libc::SYS_timerfd_settime), any(libc::SYS_dup3), any(libc::SYS_pipe2),
    any(libc::SYS_inotify_init1), any(libc::SYS_inotify_add_watch),
    any(libc::SYS_inotify_rm_watch), any(libc::SYS_close_range), any(libc::SYS_memfd_create),
    // Memory. Writable code is allowed: V8, the JVM and LuaJIT make it.
    any(libc::SYS_mmap), any(libc::SYS_mprotect), any(libc::SYS_munmap), any(libc::SYS_brk), any(libc::SYS_mremap),
    any(libc::SYS_msync), any(libc::SYS_madvise), any(libc::SYS_mlock), any(libc::SYS_munlock),
    any(libc::SYS_membarrier),
    // System V memory, which PostgreSQL and X take; the sandbox has an ipc namespace of its own.
    any(libc::SYS_shmget), any(libc::SYS_shmat), any(libc::SYS_shmctl), any(libc::SYS_shmdt),
    // Signals and timers.
    any(libc::SYS_rt_sigaction), any(libc::SYS_rt_sigprocmask), any(libc::SYS_rt_sigreturn), any(libc::SYS_pause),
    any(libc::SYS_nanosleep), any(libc::SYS_alarm), any(libc::SYS_setitimer),
    any(libc::SYS_kill), any(libc::SYS_rt_sigtimedwait),
    any(libc::SYS_rt_sigsuspend), any(libc::SYS_sigaltstack), any(libc::SYS_tkill), any(libc::SYS_tgkill),
    any(libc::SYS_timer_create), any(libc::SYS_timer_settime),
    any(libc::SYS_timer_delete),
    any(libc::SYS_gettimeofday), any(libc::SYS_clock_gettime), any(libc::SYS_clock_getres),
    any(libc::SYS_clock_nanosleep), any(libc::SYS_times), any(libc::SYS_pidfd_open), any(libc::SYS_pidfd_send_signal),
    any(libc::SYS_restart_syscall),
    // Processes and threads. `clone3` has its flags in memory, where no filter sees them: libraries fall back.
    only(libc::SYS_clone, &[&[Masked(0, NAMESPACE_FLAGS, 0)]]),
    any(libc::SYS_fork), any(libc::SYS_vfork), any(libc::SYS_execve), any(libc::SYS_exit),
    any(libc::SYS_exit_group), any(libc::SYS_wait4), any(libc::SYS_waitid), any(libc::SYS_uname),
    any(libc::SYS_sysinfo), any(libc::SYS_getpid), any(libc::SYS_getppid), any(libc::SYS_gettid),
    any(libc::SYS_setpgid), any(libc::SYS_getpgid), any(libc::SYS_getpgrp), any(libc::SYS_setsid),
    any(libc::SYS_getrusage),
    any(libc::SYS_set_tid_address), any(libc::SYS_set_robust_list),
    any(libc::SYS_rseq), any(libc::SYS_getrandom), any(libc::SYS_seccomp),
    // Own process only, and never RLIMIT_CORE (4): its value 1 keeps the kernel from starting the host's core
    // handler, and 0 would not. ENOSYS, since programs that turn their dumps off (gpg) take that for an answer.
    only(libc::SYS_prlimit64, &[&[Is(0, 0), Not(1, 4)]]),
    // FS and GS bases, CPUID faulting (read), wide registers.
    only(libc::SYS_arch_prctl, &[&[Is(0, 0x1001)], &[Is(0, 0x1002)], &[Is(0, 0x1003)], &[Is(0, 0x1004)], &[Is(0, 0x1011)], &[Is(0, 0x1021)], &[Is(0, 0x1022)], &[Is(0, 0x1023)]]),
    // WAIT, WAKE, FD (gone), REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET. No priority inheritance.
    only(libc::SYS_futex, &[&[Masked(1, 0x7f, 0)], &[Masked(1, 0x7f, 1)], &[Masked(1, 0x7f, 2)], &[Masked(1, 0x7f, 3)], &[Masked(1, 0x7f, 4)], &[Masked(1, 0x7f, 5)], &[Masked(1, 0x7f, 9)], &[Masked(1, 0x7f, 10)]]),
    only(libc::SYS_prctl, PRCTL),
    // Scheduling, without a change of class.
    any(libc::SYS_sched_yield), any(libc::SYS_getpriority), any(libc::SYS_setpriority),
    any(libc::SYS_sched_get_priority_max),
    any(libc::SYS_sched_get_priority_min), any(libc::SYS_sched_setaffinity),
    any(libc::SYS_sched_getaffinity),
    // Users and groups: nothing for the user, what `sudo` needs for root.
    any(libc::SYS_getuid), any(libc::SYS_getgid), any(libc::SYS_geteuid), any(libc::SYS_getegid), any(libc::SYS_setuid),
    any(libc::SYS_setgid), any(libc::SYS_getgroups),
    any(libc::SYS_setgroups), any(libc::SYS_setresuid), any(libc::SYS_getresuid), any(libc::SYS_setresgid),
    any(libc::SYS_getresgid), any(libc::SYS_capget),
    // Sockets: UNIX ones, and TCP and UDP in a network namespace that has nothing but loopback.
    only(libc::SYS_socket, &[
        &[Is(0, 1), Masked(1, 0xf, 1)], &[Is(0, 1), Masked(1, 0xf, 2)], &[Is(0, 1), Masked(1, 0xf, 5)],
        &[Is(0, 2), Masked(1, 0xf, 1), Is(2, 0)], &[Is(0, 2), Masked(1, 0xf, 1), Is(2, 6)],
        &[Is(0, 2), Masked(1, 0xf, 2), Is(2, 0)], &[Is(0, 2), Masked(1, 0xf, 2), Is(2, 17)],
        &[Is(0, 10), Masked(1, 0xf, 1), Is(2, 0)], &[Is(0, 10), Masked(1, 0xf, 1), Is(2, 6)],
        &[Is(0, 10), Masked(1, 0xf, 2), Is(2, 0)], &[Is(0, 10), Masked(1, 0xf, 2), Is(2, 17)],
    ]),
    only(libc::SYS_socketpair, &[&[Is(0, 1), Masked(1, 0xf, 1)], &[Is(0, 1), Masked(1, 0xf, 2)], &[Is(0, 1), Masked(1, 0xf, 5)]]),
    any(libc::SYS_connect), any(libc::SYS_accept), any(libc::SYS_accept4), any(libc::SYS_bind), any(libc::SYS_listen),
    any(libc::SYS_getsockname), any(libc::SYS_getpeername), any(libc::SYS_shutdown), any(libc::SYS_getsockopt),
    any(libc::SYS_setsockopt), any(libc::SYS_sendto), any(libc::SYS_recvfrom), any(libc::SYS_sendmsg),
    any(libc::SYS_recvmsg), any(libc::SYS_sendmmsg),
    only(libc::SYS_ioctl, IOCTL),
];
/// Control commands: terminals, bytes waiting, non-blocking, close-on-exec. What types into, re-disciplines or
/// hijacks a terminal (`TIOCSTI`, `TIOCLINUX`, `TIOCSETD`, `TIOCCONS`) is not here.
#[rustfmt::skip]
const IOCTL: &[&[Check]] = &[
    &[Is(1, 0x5401)], &[Is(1, 0x5402)], &[Is(1, 0x5403)], &[Is(1, 0x5404)], // TCGETS, TCSETS, TCSETSW, TCSETSF
    &[Is(1, 0x802C_542A)], &[Is(1, 0x402C_542B)], &[Is(1, 0x402C_542C)], &[Is(1, 0x402C_542D)], // the same, termios2
    &[Is(1, 0x5409)], &[Is(1, 0x540A)], &[Is(1, 0x540B)], // TCSBRK, TCXONC, TCFLSH
    &[Is(1, 0x540E)], &[Is(1, 0x5422)], &[Is(1, 0x5429)], // TIOCSCTTY, TIOCNOTTY, TIOCGSID
    &[Is(1, 0x540F)], &[Is(1, 0x5410)], // TIOCGPGRP, TIOCSPGRP
    &[Is(1, 0x5411)], &[Is(1, 0x5413)], &[Is(1, 0x5414)], // TIOCOUTQ, TIOCGWINSZ, TIOCSWINSZ
    &[Is(1, 0x8004_5430)], &[Is(1, 0x4004_5431)], &[Is(1, 0x5441)], // TIOCGPTN, TIOCSPTLCK, TIOCGPTPEER
    &[Is(1, 0x541B)], &[Is(1, 0x5421)], &[Is(1, 0x5452)], // FIONREAD, FIONBIO, FIOASYNC
    &[Is(1, 0x5450)], &[Is(1, 0x5451)], // FIONCLEX, FIOCLEX
];

#[rustfmt::skip]
const PRCTL: &[&[Check]] = &[
    &[Is(0, 1)], &[Is(0, 2)], // the parent's death signal
    &[Is(0, 3)], &[Is(0, 4)], // dumpable
    &[Is(0, 7)], &[Is(0, 23)], &[Is(0, 27)], &[Is(0, 47), Is(1, 1)], // reading: keepcaps, bounding set, secure bits, ambient set
    &[Is(0, 15)], &[Is(0, 16)], // name
    &[Is(0, 21)], &[Is(0, 22)], &[Is(0, 38)], &[Is(0, 39)], // seccomp, no_new_privs
    &[Is(0, 29)], &[Is(0, 30)], // timer slack
    &[Is(0, 36)], &[Is(0, 37)], // child subreaper
    &[Is(0, 41)], &[Is(0, 42)], // huge pages
    &[Is(0, 52)], // reading: speculation control
    &[Is(0, 65)], &[Is(0, 66)], // deny writable code (only ever tightens)
    &[Is(0, 0x5356_4d41)], // names of memory areas
];

/// Calls that are `EPERM`, and options that are though their call is allowed.
#[rustfmt::skip]
pub const DENY: &[Row] = &[
    only(libc::SYS_clone, &[&[Masked(0, 0x2_0000, 0x2_0000)], &[Masked(0, 0x200_0000, 0x200_0000)], &[Masked(0, 0x400_0000, 0x400_0000)],
        &[Masked(0, 0x800_0000, 0x800_0000)], &[Masked(0, 0x1000_0000, 0x1000_0000)], &[Masked(0, 0x2000_0000, 0x2000_0000)],
        &[Masked(0, 0x4000_0000, 0x4000_0000)]]),
    any(libc::SYS_unshare), any(libc::SYS_setns), any(libc::SYS_mount), any(libc::SYS_umount2), any(libc::SYS_chroot),
    any(libc::SYS_ptrace), any(libc::SYS_process_vm_readv), any(libc::SYS_process_vm_writev), any(libc::SYS_kcmp),
    any(libc::SYS_pidfd_getfd), any(libc::SYS_name_to_handle_at), any(libc::SYS_perf_event_open),
    any(libc::SYS_add_key), any(libc::SYS_request_key), any(libc::SYS_keyctl), any(libc::SYS_fanotify_init),
    any(libc::SYS_syslog), any(libc::SYS_reboot), any(libc::SYS_swapon), any(libc::SYS_swapoff), any(libc::SYS_acct),
    any(libc::SYS_quotactl), any(libc::SYS_settimeofday), any(libc::SYS_clock_settime), any(libc::SYS_clock_adjtime),
    any(libc::SYS_adjtimex), any(libc::SYS_sethostname), any(libc::SYS_setdomainname), any(libc::SYS_iopl),
    any(libc::SYS_ioperm), any(libc::SYS_vhangup),
    only(libc::SYS_mknod, &[&[Masked(1, 0xF000, 0x2000)], &[Masked(1, 0xF000, 0x6000)]]),
    only(libc::SYS_mknodat, &[&[Masked(2, 0xF000, 0x2000)], &[Masked(2, 0xF000, 0x6000)]]),
    only(libc::SYS_ioctl, &[&[Is(1, 0x5412)], &[Is(1, 0x541C)], &[Is(1, 0x5423)], &[Is(1, 0x541D)]]), // TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS
    only(libc::SYS_setsockopt, SETSOCKOPT),
    // Filters of one's own: the kernel compiles each into memory of which the whole host has a few hundred megabytes,
    // counted for no cgroup, and under locks that the start of every other sandbox takes as well.
    only(libc::SYS_seccomp, &[&[Is(0, 1)]]), only(libc::SYS_prctl, &[&[Is(0, 22), Is(1, 2)]]),
    // Huge pages, where the host has set some aside: counted for no cgroup that cages have.
    only(libc::SYS_mmap, &[&[Masked(3, 0x4_0000, 0x4_0000)]]), only(libc::SYS_memfd_create, &[&[Masked(1, 4, 4)]]),
    only(libc::SYS_shmget, &[&[Masked(2, 0o4000, 0o4000)]]),
    // What evicts pages of a file (FADV_DONTNEED, MADV_COLD, MADV_PAGEOUT): a template's are shared with other tenants, and who
    // evicts them sees who reads them next.
    only(libc::SYS_fadvise64, &[&[Is(3, 4)]]), only(libc::SYS_madvise, &[&[Is(2, 20)], &[Is(2, 21)]]),
    // MSG_OOB: out-of-band data has been a source of bugs and has no users.
    only(libc::SYS_sendto, &[&[Masked(3, 1, 1)]]), only(libc::SYS_recvfrom, &[&[Masked(3, 1, 1)]]),
    only(libc::SYS_sendmsg, &[&[Masked(2, 1, 1)]]), only(libc::SYS_recvmsg, &[&[Masked(2, 1, 1)]]),
    only(libc::SYS_sendmmsg, &[&[Masked(3, 1, 1)]]), only(libc::SYS_recvmmsg, &[&[Masked(3, 1, 1)]]),
];

/// (level, option): upper-layer protocols, signed segments, encapsulation, IPsec policies, multicast, flow labels, packet filters,
/// crypto sockets.
#[rustfmt::skip]
const SETSOCKOPT: &[&[Check]] = &[
    &[Is(1, 6), Is(2, 31)], // TCP_ULP
    &[Is(1, 6), Is(2, 14)], &[Is(1, 6), Is(2, 32)], &[Is(1, 6), Is(2, 38)], &[Is(1, 6), Is(2, 39)], &[Is(1, 6), Is(2, 40)], // TCP-MD5, TCP-AO
    &[Is(1, 17), Is(2, 100)], // UDP_ENCAP
    &[Is(1, 0), Is(2, 16)], &[Is(1, 0), Is(2, 17)], &[Is(1, 41), Is(2, 34)], &[Is(1, 41), Is(2, 35)], // IPSEC, XFRM policy
    &[Is(1, 0), Is(2, 35)], &[Is(1, 0), Is(2, 39)], &[Is(1, 0), Is(2, 41)], &[Is(1, 0), Is(2, 42)], &[Is(1, 0), Is(2, 46)], &[Is(1, 0), Is(2, 48)], // IPv4 multicast
    &[Is(1, 41), Is(2, 20)], &[Is(1, 41), Is(2, 27)], &[Is(1, 41), Is(2, 42)], &[Is(1, 41), Is(2, 46)], &[Is(1, 41), Is(2, 48)], // IPv6 multicast, anycast
    &[Is(1, 41), Is(2, 32)], // IPv6 flow labels: a table of the whole host's
    &[Is(1, 1), Is(2, 26)], &[Is(1, 1), Is(2, 44)], &[Is(1, 1), Is(2, 50)], &[Is(1, 1), Is(2, 51)], &[Is(1, 1), Is(2, 52)], // filters
    &[Is(1, 279)], // SOL_ALG
];

/// Calls that end the process.
#[rustfmt::skip]
pub const KILL: &[Row] = &[
    any(libc::SYS_kexec_load), any(libc::SYS_kexec_file_load), any(libc::SYS_init_module), any(libc::SYS_finit_module),
    any(libc::SYS_delete_module), any(libc::SYS_pivot_root), any(libc::SYS_open_by_handle_at), any(libc::SYS_bpf),
];
