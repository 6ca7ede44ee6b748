//! K36: what the template holds works in a sandbox: runtimes, package managers, git, shells.

use crate::run::Order;
use crate::server::{beside_others, shared};

const PYTHON: &str = r#"
import asyncio, concurrent.futures as futures, http.server, multiprocessing, os, shutil, sqlite3, ssl, subprocess, tempfile, threading, urllib.request, zipfile
async def main():
    child = await asyncio.create_subprocess_exec("true")
    await child.wait()
    await asyncio.to_thread(os.getpid)
asyncio.run(main())
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
with futures.ProcessPoolExecutor(2) as pool: assert list(pool.map(abs, [-1])) == [1]
folder = tempfile.mkdtemp(); os.chdir(folder)
database = sqlite3.connect("db"); database.execute("pragma journal_mode=wal"); database.execute("create table t(a)"); database.commit()
shutil.copytree(folder, folder + "2"); shutil.make_archive("all", "gztar", folder + "2"); shutil.unpack_archive("all.tar.gz", "un")
ssl.create_default_context()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
assert b"db" in urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read()
with zipfile.ZipFile("p-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("p.py", "print('p works')")
    wheel.writestr("p-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: p\nVersion: 1.0\n")
    wheel.writestr("p-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: a\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("p-1.0.dist-info/RECORD", "")
subprocess.run(["python3", "-m", "venv", "v"], check=True)
subprocess.run(["v/bin/pip", "install", "--quiet", "--no-index", "./p-1.0-py3-none-any.whl"], check=True)
subprocess.run(["v/bin/python", "-m", "p"], check=True)
"#;

const NODE: &str = r#"
const fs = require("fs"), cp = require("child_process"), http = require("http"), {Worker} = require("worker_threads");
process.chdir(fs.mkdtempSync("/tmp/n")); fs.writeFileSync("a", "x"); fs.cpSync("a", "b"); fs.watch(".").close();
require("crypto").pbkdf2Sync("a", "b", 1000, 32, "sha256"); require("zlib").gzipSync("x");
if (cp.execSync("echo a", {stdio: "pipe"}).toString() != "a\n") throw 1;
new Worker("require('worker_threads').parentPort.postMessage(1)", {eval: true}).on("message", () => {
  const server = http.createServer((request, answer) => answer.end("hi")).listen(0, "127.0.0.1", () =>
    http.get({host: "127.0.0.1", port: server.address().port}, (answer) => {
      answer.resume(); answer.on("end", () => { server.close(); console.log("node works"); }); }));
});
"#;

const SHELL: &str = r#"set -e -o pipefail; cd $(mktemp -d); export HOME=$PWD
seq 100 | sort -n | uniq -c | awk '{s += $2} END {print s}' >out; diff out <(echo 5050); cp -a out o2; ln out o3; ln -s out o4; mkfifo ff; rm ff
tar cf x.tar out; tar tf x.tar; tar czf x.tgz out; tar cJf x.txz out; bzip2 -c out | bunzip2; zip -q x.zip out; unzip -t x.zip; xz -t x.txz
patch --dry-run out <(printf '@@ -1 +1 @@\n-5050\n+1\n'); file out; jq -n '{a: 1}' | jq .a; curl -s file://$PWD/out; find . | xargs ls -la; timeout 1 true; nice true; nohup true
ps aux; top -bn1; pstree; free; uptime; sleep 0.1 & wait; kill -l; getent passwd; sha256sum out; du -s .; df .; truncate -s 9 z; split out; shuf out
git init -q g; cd g; git config user.email a@b; git config user.name a; seq 500 >f; git add .; git commit -qm 1; git clone -q . ../h; git gc -q; git fsck; git log | cat
echo shell works
"#;

const PACKAGES: &str = r#"set -e; cd $(mktemp -d); chmod 755 .; mkdir -p d/DEBIAN d/usr/share/d
printf 'Package: d\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: d\n' >d/DEBIAN/control; echo x >d/usr/share/d/made; printf '#!/bin/sh\nid\n' >d/DEBIAN/postinst; chmod 755 d/DEBIAN/postinst
dpkg-deb -b d; sudo apt-get install -y ./d.deb; cat /usr/share/d/made; dpkg -s d; sudo dpkg -r d; test ! -e /usr/share/d/made; apt-cache policy dpkg; sudo chown 1000:1000 /opt; echo packages work
"#;

#[test]
fn k36_what_the_template_holds_works_in_a_sandbox() {
    let _guard = beside_others();
    let server = shared();
    let ana = server.user("acme", "ana");
    for (order, prints) in [
        (Order::python(PYTHON), "p works"),
        (Order::command(&["node", "-e", NODE]), "node works"),
        (Order::shell(SHELL), "shell works"),
        (Order::shell(PACKAGES).root(), "packages work"),
    ] {
        let outcome = server.run(&ana, &order).succeeded();
        assert!(outcome.text().contains(prints), "{}", outcome.summary());
    }
}
