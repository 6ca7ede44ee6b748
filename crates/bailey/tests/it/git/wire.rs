//! Requests that no git sends.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{bare_git, noise, packs};
use crate::server::{Server, User, text};

/// Sends a request by hand; the status, and the body.
fn curl(token: &str, url: &str, args: &[&str], body: &[u8]) -> (String, Vec<u8>) {
    use std::io::Write as _;
    let mut child = Command::new("curl")
        .args(["-s", "-o", "-", "-w", "\n%{http_code}", "-H", &format!("Authorization: Bearer {token}")])
        .args(args)
        .args(["--data-binary", "@-", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap_or_default();
    let mut output = child.wait_with_output().unwrap().stdout;
    let at = output.iter().rposition(|byte| *byte == b'\n').unwrap();
    let status = text(&output[at + 1..]);
    output.truncate(at);
    (status, output)
}

fn pkt(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{:04x}{line}", line.len() + 4).into_bytes()).chain(*b"0000").collect()
}

fn object(kind: u8, size: usize, before: &[u8], content: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    assert!(size < 16, "one byte of header");
    let mut bytes = vec![(kind << 4) | u8::try_from(size).unwrap()];
    bytes.extend_from_slice(before);
    let mut encoder = flate2::write::ZlibEncoder::new(bytes, flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// A pack with `base` as a file of four bytes, or where it has twenty, its id alone; and a delta on it.
fn delta_pack(base: &[u8], becomes: u64) -> Vec<u8> {
    let varint = |mut value: u64| {
        let mut bytes = Vec::new();
        while value > 0x7f {
            bytes.push(u8::try_from(value & 0x7f).unwrap() | 0x80);
            value >>= 7;
        }
        bytes.push(u8::try_from(value).unwrap());
        bytes
    };
    let here = base.len() == 4;
    let id: Vec<u8> = if here {
        let sum = bare_git().args(["hash-object", "--stdin"]).stdin(file_of(base)).output().unwrap();
        let text = text(&sum.stdout);
        (0..20).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    } else {
        base.to_vec()
    };
    // Copies the four bytes once, whatever it says.
    let delta = [varint(4), varint(becomes), vec![0x90, 4]].concat();
    let objects = [if here { object(3, 4, b"", base) } else { Vec::new() }, object(7, delta.len(), &id, &delta)];
    let mut pack = [&b"PACK\0\0\0\x02\0\0\0"[..], &[if here { 2 } else { 1 }], &objects.concat()].concat();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pack"), &pack).unwrap();
    let sum = Command::new("sha1sum").arg(folder.path().join("pack")).output().unwrap();
    let sum = text(&sum.stdout);
    pack.extend((0..20).map(|at| u8::from_str_radix(&sum[2 * at..2 * at + 2], 16).unwrap()));
    pack
}

/// A file to read from, with these bytes.
fn file_of(bytes: &[u8]) -> std::fs::File {
    use std::io::{Seek as _, Write as _};
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

#[test]
fn hostile_requests_are_refused_and_leave_nothing() {
    let server = Server::start();
    let ana = server.user("acme", "ana");
    ana.put("/tenants/acme/f", "x");
    let head = |user: &User| -> String {
        let history: Value = user.json(&["log", "/tenants/acme"]);
        history["versions"][0]["version"].as_str().unwrap().to_owned()
    };
    let main = head(&ana);
    let url = |service: &str| format!("{}/git/acme.git/{service}", server.url);
    let post = |service: &str, extra: &[&str], body: &[u8]| {
        let kind = format!("Content-Type: application/x-{service}-request");
        let args: Vec<&str> = ["-H", &kind].into_iter().chain(extra.iter().copied()).collect();
        curl(&ana.token, &url(service), &args, body)
    };
    let before = packs(&server);
    let (nothing, wrong) = ("0".repeat(40), "1".repeat(40));
    // Lines that are none, too many of them, and a gzip bomb.
    assert_eq!(post("git-receive-pack", &[], b"ffff").0, "400");
    assert_eq!(post("git-receive-pack", &[], b"fff0").0, "400");
    let many: Vec<String> = (0..300).map(|n| format!("{nothing} {wrong} refs/heads/b{n}")).collect();
    assert_eq!(post("git-receive-pack", &[], &pkt(&many)).0, "400");
    let bomb = {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        (0..64).for_each(|_| encoder.write_all(&vec![b'0'; 1 << 20]).unwrap());
        encoder.finish().unwrap()
    };
    assert_eq!(post("git-upload-pack", &["-H", "Content-Encoding: gzip"], &bomb).0, "413");
    // A push of nothing but zeros is an empty one, of which nothing is read but its first line.
    assert_eq!(post("git-receive-pack", &["-H", "Content-Encoding: gzip"], &bomb).0, "200");
    assert_eq!(post("git-upload-pack", &["-H", "Content-Encoding: br"], b"").0, "415");
    // What no branch leads to is not given out, in any version of the protocol, though the store has it.
    let blob = ana.json(&["ls", "/tenants/acme"])["entries"][0]["id"].as_str().unwrap().to_owned();
    for id in [&blob, &wrong] {
        let body = [&pkt(&[format!("want {id} side-band-64k\n")])[..], b"0009done\n"].concat();
        let (status, said) = post("git-upload-pack", &[], &body);
        assert_eq!((status.as_str(), text(&said).contains("ERR no branch here leads to")), ("200", true), "{said:?}");
        let body = format!("0011command=fetch0001{:04x}want {id}0009done\n0000", 9 + id.len());
        let (status, said) = post("git-upload-pack", &["-H", "Git-Protocol: version=2"], body.as_bytes());
        assert_eq!((status.as_str(), text(&said).contains("ERR no branch here leads to")), ("200", true), "{said:?}");
    }
    // Packs that lie: cut off, no pack at all, a delta on what nobody or another tenant has (F16).
    let command = format!("{main} {wrong} refs/heads/main\0report-status");
    for junk in [&b""[..], b"PACK", b"PACK\0\0\0\x02\xff\xff\xff\xff", &noise(5000, 3)] {
        let (status, said) = post("git-receive-pack", &[], &[&pkt(std::slice::from_ref(&command)), junk].concat());
        let said = text(&said);
        assert!(status == "200" && said.contains("unpack ") && !said.contains("unpack ok"), "{status} {said}");
        assert!(said.contains("ng refs/heads/main unpacker error"), "{said}");
    }
    // A delta that says it becomes four gigabytes, and one on what is nowhere (or another tenant's, F16).
    let (delta, nowhere) = (delta_pack(b"base", 4 << 30), delta_pack(&noise(20, 5), 4));
    for (pack, reason) in [(delta, "allocate"), (nowhere[..].to_vec(), "unresolved delta")] {
        let (_, said) = post("git-receive-pack", &[], &[&pkt(std::slice::from_ref(&command)), &pack[..]].concat());
        assert!(text(&said).contains(reason), "{}", text(&said));
    }
    assert_eq!(packs(&server), before);
    assert_eq!(head(&ana), main);
    // Other protocols, other services.
    for (path, status) in [
        ("info/refs", "400"),
        ("info/refs?service=git-upload-archive", "400"),
        ("info/lfs/objects/batch", "404"),
        ("HEAD", "404"),
        ("objects/info/packs", "404"),
    ] {
        let output = Command::new("curl")
            .args([
                "-s",
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
                "-H",
                &format!("Authorization: Bearer {}", ana.token),
            ])
            .arg(url(path))
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), status, "{path}");
    }
    // Without a credential git is asked for one.
    let output = Command::new("curl").args(["-s", "-i", &url("info/refs?service=git-upload-pack")]).output().unwrap();
    assert!(text(&output.stdout).to_lowercase().contains("www-authenticate: basic realm=\"bailey\""), "{output:?}");
}
