use super::*;

const BASE: Base = Base(1_073_741_824);

fn good_status() -> String {
    let caps = format!("{:016x}", CAPABILITIES.bits());
    format!(
        "Name:\tbailey-guest\nUid:\t{0}\t{0}\t{0}\t{0}\nGid:\t{0}\t{0}\t{0}\t{0}\nGroups:\t \nCapInh:\t{1:016x}\n\
         CapPrm:\t{caps}\nCapEff:\t{caps}\nCapBnd:\t{caps}\nCapAmb:\t{1:016x}\nNoNewPrivs:\t1\nSeccomp:\t2\n\
         Seccomp_filters:\t2\n",
        BASE.0, 0
    )
}

#[test]
fn g03_every_weakened_line_of_the_status_is_caught() {
    status(&good_status(), BASE, OF_THE_GUEST).unwrap();
    for (from, to) in [
        ("Uid:\t1073741824", "Uid:\t0"),
        ("Gid:\t1073741824", "Gid:\t1073741825"),
        ("Groups:\t ", "Groups:\t0 "),
        ("CapInh:\t0000000000000000", "CapInh:\t0000000000000001"),
        ("CapAmb:\t0000000000000000", "CapAmb:\t0000000000200000"),
        ("CapBnd:\t", "CapBnd:\t1"),
        ("CapEff:\t", "CapEff:\t1"),
        ("CapPrm:\t0", "CapPrm:\t8"),
        ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ("Seccomp:\t2", "Seccomp:\t0"),
        ("Seccomp_filters:\t2", "Seccomp_filters:\t1"),
        ("NoNewPrivs:\t1\n", ""),
    ] {
        let weak = good_status().replacen(from, to, 1);
        assert_ne!(weak, good_status(), "{from}");
        assert!(status(&weak, BASE, OF_THE_GUEST).is_err(), "{to}");
    }
}

#[test]
fn maps_must_be_the_whole_range_and_nothing_else() {
    map("         0 1073741824      65536\n", BASE).unwrap();
    for bad in ["", "0 0 65536", "0 1073741824 65537", "0 1073741824 65536\n65536 0 1"] {
        assert!(map(bad, BASE).is_err(), "{bad}");
    }
}

#[test]
fn groups_must_be_its_own_in_every_hierarchy() {
    let own = "/bailey/0123/sbx";
    groups("8:pids:/bailey/0123/sbx\n4:memory:/bailey/0123/sbx\n1:cpu,cpuacct:/bailey/0123/sbx\n3:cpuset:/\n0::/bailey/0123/sbx\n", own)
        .unwrap();
    groups("0::/bailey/0123/sbx/init\n", own).unwrap();
    for bad in [
        "8:pids:/\n0::/bailey/0123/sbx\n",
        "8:pids:/bailey/0123/sbx\n",
        "0::/bailey/0123/sbx2\n",
        "4:memory:/bailey/0123\n0::/bailey/0123/sbx\n",
        "",
    ] {
        assert!(groups(bad, own).is_err(), "{bad}");
    }
}

fn good_mounts() -> String {
    [
        "20 1 0:40 / / rw,nosuid,nodev,relatime - overlay overlay rw,lowerdir+=/,upperdir=/root-upper,workdir=/root-work",
        "21 20 0:41 / /dev ro,nosuid,noexec - tmpfs tmpfs ro",
        "22 21 0:42 / /dev/pts rw,nosuid,noexec - devpts devpts rw",
        "23 21 0:43 /shm /dev/shm rw,nosuid,nodev,noexec - tmpfs disk rw",
        "24 20 0:44 / /proc rw,nosuid,nodev,noexec - proc proc rw",
        "25 24 0:44 /sys /proc/sys ro,nosuid,nodev,noexec - proc proc rw",
        "26 24 0:45 /file /proc/kcore ro,nosuid,nodev - tmpfs tmpfs ro",
        "28 24 0:43 /facts/meminfo /proc/meminfo ro,nosuid,nodev,noexec - tmpfs disk rw",
        "29 24 0:43 /facts/cpuinfo /proc/cpuinfo ro,nosuid,nodev,noexec - tmpfs disk rw",
        "30 24 0:43 /facts/stat /proc/stat ro,nosuid,nodev,noexec - tmpfs disk rw",
        "31 24 0:43 /facts/loadavg /proc/loadavg ro,nosuid,nodev,noexec - tmpfs disk rw",
        "32 25 0:43 /facts/boot_id /proc/sys/kernel/random/boot_id ro,nosuid,nodev,noexec - tmpfs disk rw",
        "27 20 0:45 /agent /run/bailey/agent ro,nosuid,nodev - tmpfs tmpfs ro",
    ]
    .join("\n")
}

#[test]
fn l03_mounts_are_the_known_ones_and_show_no_path_of_the_host() {
    mounts(&good_mounts(), of_the_guest("tmpfs")).unwrap();
    for (from, to) in [
        (" / / rw,nosuid,", " / / rw,"),
        (" /dev ro,", " /dev rw,"),
        ("- overlay", "- ext4"),
        ("/shm /dev/shm", "/srv/bailey/shm /dev/shm"),
        ("/sys /proc/sys ro", "/sys /proc/sys rw"),
        ("rw,nosuid,nodev,relatime", "rw,nosuid,relatime"),
        ("/agent /run/bailey/agent ro", "/agent /run/bailey/agent rw"),
        ("/proc/kcore", "/mnt"),
        ("/facts/meminfo /proc/meminfo ro", "/facts/meminfo /proc/meminfo rw"),
        ("/facts/meminfo", "/facts/stat"),
        ("/facts/stat /proc/stat", "/facts/stat /mnt"),
        ("/proc/kcore", "/proc/sys"),
        ("/proc/sys ro", "/proc/bus ro"),
    ] {
        let weak = good_mounts().replacen(from, to, 1);
        assert_ne!(weak, good_mounts(), "{from}");
        assert!(mounts(&weak, of_the_guest("tmpfs")).is_err(), "{to}");
    }
}

#[test]
fn k16_descriptors_with_a_path_are_caught() {
    let good = || {
        let list = ["/dev/null", "/dev/null", "/dev/null", "socket:[7]", "/", "anon_inode:[eventpoll]"];
        (0..).zip(list.map(str::to_owned)).collect::<BTreeMap<u32, String>>()
    };
    descriptors(&good()).unwrap();
    for (number, bad) in
        [(0, "/dev/pts/0"), (3, "/etc"), (4, "/sys/fs/cgroup"), (5, "/etc/passwd"), (9, "/"), (5, "/proc/2/maps")]
    {
        let mut found = good();
        found.insert(number, bad.to_owned());
        assert!(descriptors(&found).is_err(), "{bad}");
    }
    let mut found = good();
    found.remove(&4);
    assert!(descriptors(&found).is_err());
}

#[test]
fn g03_what_a_program_may_not_have_is_caught() {
    let (uid, none) = (BASE.0 + USER, "0000000000000000");
    let good = format!(
        "Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t \nCapInh:\t{none}\nCapPrm:\t{none}\n\
         CapEff:\t{none}\nCapBnd:\t{none}\nCapAmb:\t{none}\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"
    );
    status(&good, BASE, OF_A_PROGRAM).unwrap();
    let root = BASE.0.to_string();
    for (from, to) in [
        (uid.to_string().as_str(), root.as_str()),
        ("CapBnd:\t0", "CapBnd:\t8"),
        ("CapEff:\t000000000000000", "CapEff:\t000000000000008"),
        ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
        ("Seccomp_filters:\t1", "Seccomp_filters:\t0"),
    ] {
        let weak = good.replacen(from, to, 1);
        assert!(weak != good && status(&weak, BASE, OF_A_PROGRAM).is_err(), "{to}");
    }
    assert!(status(&good_status(), BASE, OF_A_PROGRAM).is_err(), "it has the guest's rights");
}

#[test]
fn l03_a_program_has_a_root_that_it_cannot_write_to() {
    let without = ["/dev/pts", "/dev/shm", "/run/bailey/agent"];
    let kept: Vec<String> = good_mounts()
        .replacen(" / / rw,", " / / ro,", 1)
        .lines()
        .filter(|line| !without.iter().any(|at| line.contains(at)))
        .map(str::to_owned)
        .chain(["33 20 0:43 /tmp /tmp rw,nosuid,nodev,noexec - tmpfs disk rw".to_owned()])
        .collect();
    let good = kept.join("\n");
    mounts(&good, of_a_program("tmpfs", Profile::Vmm)).unwrap();
    for (from, to) in [
        (" / / ro,", " / / rw,"),
        ("/tmp /tmp", "/srv/tmp /tmp"),
        ("/tmp /tmp", "/tmp /mnt"),
        ("rw,nosuid,nodev,noexec - tmpfs disk", "rw,nodev - tmpfs disk"),
    ] {
        let weak = good.replacen(from, to, 1);
        assert!(weak != good && mounts(&weak, of_a_program("tmpfs", Profile::Vmm)).is_err(), "{to}");
    }
    assert!(mounts(&good_mounts(), of_a_program("tmpfs", Profile::Vmm)).is_err());
    let sealed = format!("{good}\n34 20 0:46 / /sealed/proc rw,nosuid,nodev,noexec - proc proc rw");
    mounts(&sealed, of_a_program("tmpfs", Profile::Sentry)).unwrap();
    assert!(mounts(&sealed, of_a_program("tmpfs", Profile::Vmm)).is_err());
    assert!(mounts(&good, of_a_program("tmpfs", Profile::Sentry)).is_err());
}

#[test]
fn k16_a_program_has_what_it_was_handed_in_its_place_and_nothing_else_from_outside() {
    let handed = [(7, 100), (8, 200)];
    let good = || {
        let list = [
            "/dev/null",
            "/dev/null",
            "/memfd:words (deleted)",
            "socket:[100]",
            "/srv/disk",
            "anon_inode:[eventfd]",
            "/lib/library",
        ];
        (0..).zip(list.map(str::to_owned)).collect::<BTreeMap<u32, String>>()
    };
    let at = |number: u32| match number {
        3 => Ok((7, 100)),
        4 => Ok((8, 200)),
        _ => Err(Errno::NOENT),
    };
    let check = |found: &BTreeMap<u32, String>, outside: u32| {
        program_descriptors(found, (&handed, None), at, |number| Ok(number != outside))
    };
    check(&good(), 99).unwrap();
    check(&good(), 6).unwrap_err();
    program_descriptors(&good(), (&[(8, 200), (7, 100)], None), at, |_| Ok(true)).unwrap_err();
    for number in 0..5 {
        let mut found = good();
        found.remove(&number);
        assert!(check(&found, 99).is_err(), "{number} is missing");
    }
    for number in 0..3 {
        let mut found = good();
        found.insert(number, "/dev/pts/0".to_owned());
        assert!(check(&found, 99).is_err(), "{number} is a terminal");
    }
    // The first is its standard input and output, too, where that is wanted.
    let line = |number: u32| if number < 2 { Ok((7, 100)) } else { at(number) };
    program_descriptors(&good(), (&handed, Some((7, 100))), line, |_| Ok(true)).unwrap();
    program_descriptors(&good(), (&handed, Some((7, 100))), at, |_| Ok(true)).unwrap_err();
    let mountinfo = "20 1 0:40 / / ro - overlay overlay ro\n21 20 0:41 / /dev ro - tmpfs tmpfs ro\n";
    assert_eq!(in_the_cage("pos:\t0\nflags:\t0100000\nmnt_id:\t21\nino:\t7\n", mountinfo), Ok(true));
    for outside in ["mnt_id:\t2\n", "mnt_id:\t210\n", "mnt_id:\t1\n"] {
        assert_eq!(in_the_cage(outside, mountinfo), Ok(false), "{outside}");
    }
}
