//! K36: real programs of this host work under the filters of every exec, as uid 1000 in a real guest. What a program
//! needs beyond the table in `exec::filter::table` would fail here; what none of these needs does not belong into it.

use std::time::Duration;

use crate::guest::{Guest, required};

/// What is run, and a word of its output.
struct Case {
    name: &'static str,
    script: &'static str,
    prints: &'static str,
}

const CASES: &[Case] = &[
    Case {
        name: "CPython",
        script: r#"/usr/bin/python3 -c '
import asyncio, concurrent.futures as futures, mmap, multiprocessing, os, shutil, signal, sqlite3, ssl, subprocess, tempfile, threading, time
async def main():
    child = await asyncio.create_subprocess_exec("true")
    await child.wait()
    await asyncio.to_thread(time.sleep, 0.01)
asyncio.run(main())
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
with futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1])) == [1]
with futures.ThreadPoolExecutor(2) as pool: assert list(pool.map(abs, [-1])) == [1]
folder = tempfile.mkdtemp()
database = sqlite3.connect(folder + "/db"); database.execute("pragma journal_mode=wal"); database.execute("create table t(a)"); database.commit(); database.close()
open(folder + "/f", "w").write("x"); shutil.copy2(folder + "/f", folder + "/g"); os.truncate(folder + "/g", 0); os.utime(folder + "/g"); os.mkfifo(folder + "/p"); os.remove(folder + "/p")
shutil.copytree(folder, folder + "2"); os.rename(folder + "2", folder + "3"); shutil.rmtree(folder); shutil.rmtree(folder + "3")
ssl.create_default_context()
page = mmap.mmap(-1, 4096); page.write(b"x"); page.flush()
signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause(); signal.alarm(0)
assert subprocess.run(["sh", "-c", "exit 3"], start_new_session=True).returncode == 3
os.pidfd_open(os.getpid()); os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1); os.preadv(os.open("/etc/passwd", 0), [bytearray(4)], 0)
print("python works")'"#,
        prints: "python works",
    },
    Case {
        name: "Node",
        script: r#"node -e '
const fs = require("fs"), cp = require("child_process"), os = require("os"), http = require("http"), {Worker} = require("worker_threads");
fs.writeFileSync("n", "x"); fs.copyFileSync("n", "m"); fs.utimesSync("n", 1, 1); fs.watch(".").close(); fs.truncateSync("m", 0);
os.cpus(); os.freemem(); os.setPriority(1); require("crypto").pbkdf2Sync("a", "b", 1000, 32, "sha256"); require("zlib").gzipSync("x");
if (cp.execSync("echo a; echo b >&2", {stdio: "pipe"}).toString() != "a\n") throw 1;
new Worker("require(\"worker_threads\").parentPort.postMessage(1)", {eval: true}).on("message", () => {
  const server = http.createServer((request, answer) => answer.end("hi")).listen(0, () =>
    http.get({port: server.address().port}, (answer) => { answer.resume(); answer.on("end", () => { server.close(); console.log("node works"); }); }));
});'"#,
        prints: "node works",
    },
    Case {
        name: "JVM",
        script: "keytool -genkeypair -keyalg EC -keystore store -storepass password -alias a -dname CN=a \
                 && keytool -list -keystore store -storepass password && java -XX:+UseParallelGC -Xmx64m -version && echo java works",
        prints: "java works",
    },
    Case {
        name: "GCC, make, C and C++",
        script: r#"printf '#include <pthread.h>\n#include <stdio.h>\nstatic void *f(void *x) { puts("in a thread"); return x; }\nint main(void) { pthread_t t; pthread_create(&t, 0, f, 0); return pthread_join(t, 0); }\n' >a.c \
                 && printf 'all: a b\na: a.c\n\tgcc -O2 -g -pthread -o a a.c\nb: a.c\n\tgcc -O1 -static -pthread -o b a.c\n' >Makefile && make -j2 && ./a && ./b && ar rc l.a a && echo gcc works"#,
        prints: "gcc works",
    },
    Case {
        name: "musl (Alpine's library)",
        script: r#"cat >m.c <<'C'
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
static void got(int n) { (void)n; }
static void *f(void *x) { usleep(1000); return x; }
int main(void) {
    pthread_t t; struct rlimit r; struct timeval v[2] = {{1, 0}, {1, 0}};
    signal(SIGUSR1, got);
    if (raise(SIGUSR1) || pthread_create(&t, 0, f, 0) || pthread_join(t, 0)) return 1;
    if (getrlimit(RLIMIT_NOFILE, &r) || setrlimit(RLIMIT_NOFILE, &r)) return 2;
    if (mkfifo("fifo", 0600) || unlink("fifo") || system("true")) return 3;
    FILE *p = popen("echo musl", "r"); char b[8]; if (!fgets(b, 8, p) || pclose(p)) return 4;
    fclose(fopen("file", "w")); if (utimes("file", v) || rename("file", "other") || truncate("other", 9) || remove("other")) return 5;
    if (fork() == 0) _exit(0);
    wait(0); alarm(1); alarm(0); nice(1); puts("musl works"); return 0;
}
C
musl-gcc -O1 -static -o m m.c && ./m"#,
        prints: "musl works",
    },
    Case {
        name: "Go",
        script: "printf '%s\\n' apple banana cherry | fzf --filter=ana && GOMAXPROCS=4 fzf --version && echo go works",
        prints: "banana",
    },
    Case {
        name: "Rust",
        script: "for i in $(seq 50); do echo line $i >$i; done && rg --threads 4 --mmap 'line 4' . | wc -l && echo rust works",
        prints: "rust works",
    },
    Case {
        name: "git",
        script: "git init -q g && cd g && git config user.email a@b && git config user.name a && \
                 seq 2000 >f && git add . && git commit -qm 1 && git checkout -qb side && echo x >>f && git commit -qam 2 && \
                 git clone -q . h && git gc -q && git fsck && git stash list && git log --oneline | wc -l && git bundle create -q b --all && \
                 git -C h fetch -q $PWD/b side && echo git works",
        prints: "git works",
    },
    Case {
        name: "Perl",
        script: r#"perl -MPOSIX -MFile::Copy -MFile::Temp=tempfile -MSocket -MTime::HiRes=usleep -e '
my ($h, $n) = tempfile(); print $h "x"; close $h; copy($n, "q"); utime 1, 1, "q"; truncate "q", 0; move("q", "r"); unlink "r";
socketpair(A, B, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die; system("true") == 0 or die; `echo a` eq "a\n" or die; my @t = times; usleep 10;
if (!fork) { POSIX::_exit(3) } wait; $? >> 8 == 3 or die; $SIG{ALRM} = sub {}; alarm 1; alarm 0; flock(STDIN, 4); print "perl works\n"'"#,
        prints: "perl works",
    },
    Case {
        name: "busybox",
        script: "B=busybox; $B sh -c 'echo a | busybox sed s/a/b/; busybox mkfifo p; busybox rm p' && echo x >f && $B tar cf t.tar f && \
                 $B tar xf t.tar && $B gzip -c f | $B gunzip && $B cp -a f g && $B stat f && $B find . | $B sort && $B ps && $B sha256sum f && \
                 $B timeout 1 $B sleep 0 && $B df . && $B dd if=f of=d && $B truncate -s 9 d && echo busybox works",
        prints: "busybox works",
    },
    Case {
        name: "shell and coreutils",
        script: "set -e -o pipefail; seq 100 | sort -n | uniq -c | awk '{s += $2} END {print s}' | sed s/5050/sum/ >out; read x < <(cat out); \
                 sleep 0.1 & wait; (trap : USR1; kill -USR1 $BASHPID); exec 5<>out; times; ulimit -n; [[ -r out ]]; cp -a out o2; ln out o3; ln -s out o4; \
                 mkfifo ff; rm ff; touch -d yesterday o2; timeout 1 true; nice true; nohup true; stat out; dd if=/dev/zero of=z count=1 status=none; sync z; truncate -s 9 z; \
                 mktemp; id; date; shuf out; split out; tail -n 1 out; od out; sha256sum out; ps aux; free; uptime; stdbuf -oL true; setsid true; chmod 600 z; \
                 install z zz; mv zz yy; readlink -f o4; tar cf x.tar out; tar xf x.tar; gzip -c out | gunzip; xz -c out | xz -d; find . -name 'o*' | xargs ls -la; \
                 df .; du -s .; nproc; test \"$x\" = '      1 sum' || true; echo shell works",
        prints: "shell works",
    },
    Case {
        name: "dpkg",
        script: "mkdir -p d/DEBIAN d/opt && printf 'Package: d\\nVersion: 1\\nArchitecture: all\\nMaintainer: a <a@b>\\nDescription: d\\n' >d/DEBIAN/control && \
                 dpkg-deb -b d && dpkg-deb -x d.deb x && dpkg-deb -I d.deb && dpkg -l dpkg && apt-cache policy dpkg && echo dpkg works",
        prints: "dpkg works",
    },
];

#[tokio::test]
async fn k36_real_programs_work_under_the_filters() {
    required();
    let guest = Guest::start(false).await;
    let mut broken = Vec::new();
    for case in CASES {
        let script = format!("cd $(mktemp -d) && export HOME=$PWD && {}", case.script);
        let run = guest.shell(&script);
        let outcome =
            tokio::time::timeout(Duration::from_secs(60), run).await.unwrap_or_else(|_| panic!("{}", case.name));
        if outcome.end["exitCode"].as_i64() != Some(0) || !outcome.text().contains(case.prints) {
            let (out, err) = (outcome.text(), String::from_utf8_lossy(&outcome.stderr).into_owned());
            broken.push(format!("{}: {}\n{out}\n{err}", case.name, outcome.end));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}
