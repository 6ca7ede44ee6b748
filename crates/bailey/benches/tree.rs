//! What the tree's verbs cost, against plain files and against stock git in the same loop, and what a large file costs
//! over HTTP, against `cp` and a sync.
//!
//! Prints a table and writes `bench/results/tree.json`. Needs root and the release binaries (`make bench`).
//! `BAILEY_BENCH_LARGE` is the size of the large file in MiB: 1024 without it, 5120 for the largest that is promised.

#![allow(clippy::print_stdout, reason = "the table is this program's output")]

#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/report.rs"]
mod report;
#[allow(dead_code, reason = "the other benches use the rest of it")]
#[path = "run/server.rs"]
mod server;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use bailey_protocol::id::VersionId;
use bailey_protocol::path::{BranchName, RepoId};
use bailey_tree::archive::{ExtractLimits, Format, TarWriter};
use bailey_tree::{CommitMeta, ListAsk, Source, Store, Trees};
use report::{Goal, Report, Row, Samples};
use server::Server;
use tokio::time::Instant;

const FILES: usize = 10_000;
const TURNS: usize = 50;
const WARM_UP: usize = 5;
const LARGE_TURNS: usize = 3;
const PROCESS: &str = "in process against a process";

fn main() -> anyhow::Result<()> {
    let mut report = Report::default();
    let folder = tempfile::tempdir().context("make a folder")?;
    let bench = Bench::new(folder.path())?;
    report.push(bench.commits()?);
    report.push(bench.plain_writes()?);
    report.push(bench.diffs()?);
    report.push(bench.lists()?);
    report.push(bench.copies()?);
    report.push(bench.archives()?);
    report.push(bench.reads()?);
    report.push(bench.moves()?);
    report.push(bench.logs()?);
    report.push(bench.blames()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    report.push(runtime.block_on(bench.forks())?);
    for row in runtime.block_on(large(folder.path()))? {
        report.push(row);
    }
    print!("{}", report.table());
    report.write("tree.json")
}

/// The same 10,000 files as a version of a store, as a git work tree, and as plain files.
struct Bench<'a> {
    folder: &'a Path,
    store: Store,
    version: VersionId,
}

fn meta() -> anyhow::Result<CommitMeta> {
    Ok(CommitMeta { author: "bench".parse()?, time_ms: 1_700_000_000_000, message: "bench".to_owned(), run: None })
}

fn name(number: usize) -> String {
    format!("d{:02}/e{:02}/f{number:05}.txt", number % 100 / 10, number % 100)
}

fn content(number: usize, turn: usize) -> String {
    format!("file {number}\nturn {turn}\n{}\n", "text ".repeat(40))
}

/// Durable, as what a store answers is.
fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(content)?;
    Ok(file.sync_all()?)
}

fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "-c", "user.name=b", "-c", "user.email=b@b", "-c", "core.fsync=committed"]);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let status = command.args(arguments).current_dir(folder).stdout(Stdio::null()).status().context("start git")?;
    ensure!(status.success(), "git {arguments:?}: {status}");
    Ok(())
}

/// Times two ways of one thing in turns.
fn compare(
    turns: usize,
    mut ours: impl FnMut(usize) -> anyhow::Result<()>,
    mut other: impl FnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<(Samples, Samples)> {
    let (mut our_times, mut their_times) = (Samples::default(), Samples::default());
    for turn in 0..WARM_UP + turns {
        let start = Instant::now();
        other(turn)?;
        let their_time = start.elapsed();
        let start = Instant::now();
        ours(turn)?;
        let our_time = start.elapsed();
        if turn >= WARM_UP {
            our_times.push(our_time);
            their_times.push(their_time);
        }
    }
    Ok((our_times, their_times))
}

impl<'a> Bench<'a> {
    fn new(folder: &'a Path) -> anyhow::Result<Self> {
        let trees = Trees::open(&folder.join("trees"))?;
        let store = trees.store(&RepoId { tenant: "bench".parse()?, user: None })?;
        let mut tar = TarWriter::new(Vec::new(), 0);
        let plain = folder.join("plain");
        for number in 0..FILES {
            let (name, content) = (name(number), content(number, 0));
            let path = plain.join(&name);
            fs::create_dir_all(path.parent().context("a file without a folder")?)?;
            fs::write(path, &content)?;
            tar.file(name.as_bytes(), false, content.len() as u64, &mut content.as_bytes())?;
        }
        let limits = ExtractLimits { members: u64::MAX, file_bytes: u64::MAX, bytes: u64::MAX };
        let bytes = tar.finish()?;
        let made = store.extract(None, "", Format::Tar, &mut &*bytes, &limits, &meta()?)?;
        let version = made.version.context("no version")?;
        store.publish_refs(&[(BranchName::main(), version.clone())])?;
        git(&plain, &["init", "-q", "-b", "main"])?;
        git(&plain, &["add", "."])?;
        git(&plain, &["commit", "-q", "-m", "all"])?;
        Ok(Self { folder, store, version })
    }

    fn commits(&self) -> anyhow::Result<Row> {
        let plain = self.folder.join("plain");
        let mut head = self.version.clone();
        let (ours, theirs) = compare(
            TURNS,
            |turn| {
                let text = content(turn, turn + 1);
                head =
                    self.store.write_file(Some(&head), &name(turn), &mut text.as_bytes(), u64::MAX, false, &meta()?)?;
                Ok(self.store.publish_refs(&[(BranchName::main(), head.clone())])?)
            },
            |turn| {
                write(&plain.join(name(turn)), content(turn, turn + 1).as_bytes())?;
                git(&plain, &["commit", "-q", "-m", "one", "--", &name(turn)])
            },
        )?;
        let goal = Some(Goal::RatioAtMost(1.0));
        let note = "durable on both sides".to_owned();
        Ok(Row::latency("commit of one file in 10,000".to_owned(), &ours, "git commit", &theirs, goal, note))
    }

    fn plain_writes(&self) -> anyhow::Result<Row> {
        let plain = self.folder.join("plain");
        let (ours, theirs) = compare(
            TURNS,
            |turn| {
                let text = content(turn, turn + 2);
                let base = Some(&self.version);
                let made = self.store.write_file(base, &name(turn), &mut text.as_bytes(), u64::MAX, false, &meta()?)?;
                ensure!(made != self.version, "nothing was written");
                Ok(())
            },
            |turn| write(&plain.join(name(turn)), content(turn, turn + 2).as_bytes()),
        )?;
        let note = "a version against one file".to_owned();
        Ok(Row::latency("commit of one file in 10,000".to_owned(), &ours, "write and fsync", &theirs, None, note))
    }

    fn diffs(&self) -> anyhow::Result<Row> {
        let text = content(7, 99);
        let base = Some(&self.version);
        let to = self.store.write_file(base, &name(7), &mut text.as_bytes(), u64::MAX, false, &meta()?)?;
        let (ours, theirs) = compare(
            TURNS,
            |_| {
                let diff = self.store.diff(Some(&self.version), &to, "")?;
                ensure!(diff.changes.len() == 1, "another diff");
                Ok(())
            },
            |_| git(self.store.folder(), &["diff", self.version.as_str(), to.as_str()]),
        )?;
        let goal = Some(Goal::RatioAtMost(1.0));
        let note = "the same repository".to_owned();
        Ok(Row::latency("diff of two versions".to_owned(), &ours, "git diff", &theirs, goal, note))
    }

    fn lists(&self) -> anyhow::Result<Row> {
        let ask = ListAsk { recursive: true, limit: 20_000, ..ListAsk::default() };
        let (ours, theirs) = compare(
            TURNS,
            |_| {
                let page = self.store.list_page(Some(&self.version), "", &ask, &mut |_| true)?;
                ensure!(page.entries.len() > FILES && page.next.is_none(), "another listing");
                Ok(())
            },
            |_| git(self.store.folder(), &["ls-tree", "-r", "-t", "-l", self.version.as_str()]),
        )?;
        let note = "sizes included".to_owned();
        Ok(Row::latency("list of 10,000 files".to_owned(), &ours, "git ls-tree -r -t -l", &theirs, None, note))
    }

    fn copies(&self) -> anyhow::Result<Row> {
        let plain = self.folder.join("plain");
        let (ours, theirs) = compare(
            10,
            |turn| {
                let source = Source { store: &self.store, version: &self.version, inner: "d00" };
                self.store.copy(Some(&self.version), source, &format!("copy{turn}"), &meta()?)?;
                Ok(())
            },
            |turn| {
                let to = self.folder.join(format!("copy{turn}"));
                let status = Command::new("cp").arg("-a").arg(plain.join("d00")).arg(to).status()?;
                ensure!(status.success(), "cp: {status}");
                Ok(())
            },
        )?;
        let goal = Some(Goal::RatioAtMost(1.0));
        Ok(Row::latency(
            "copy of 1,000 files".to_owned(),
            &ours,
            "cp -a",
            &theirs,
            goal,
            "durable against not".to_owned(),
        ))
    }

    fn archives(&self) -> anyhow::Result<Row> {
        let (ours, theirs) = compare(
            10,
            |_| Ok(self.store.archive(&self.version, "", Format::Tar, &mut std::io::sink())?),
            |_| git(self.store.folder(), &["archive", "--format=tar", "-o", "/dev/null", self.version.as_str()]),
        )?;
        let note = "each byte verified on the way".to_owned();
        Ok(Row::latency("tar of 10,000 files".to_owned(), &ours, "git archive", &theirs, None, note))
    }
}

impl Bench<'_> {
    fn reads(&self) -> anyhow::Result<Row> {
        let (ours, theirs) = compare(
            TURNS,
            |turn| {
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut self.store.read(&self.version, &name(turn))?, &mut content)?;
                ensure!(!content.is_empty(), "an empty file");
                Ok(())
            },
            |turn| git(self.store.folder(), &["cat-file", "blob", &format!("{}:{}", self.version, name(turn))]),
        )?;
        let goal = Some(Goal::RatioAtMost(1.0));
        Ok(Row::latency("read one file of 10,000".to_owned(), &ours, "git cat-file", &theirs, goal, PROCESS.to_owned()))
    }

    fn moves(&self) -> anyhow::Result<Row> {
        let plain = self.folder.join("plain");
        let moved = |turn: usize| format!("moved/f{turn}.txt");
        fs::create_dir_all(plain.join("moved"))?;
        let mut head = self.version.clone();
        let (ours, theirs) = compare(
            TURNS,
            |turn| {
                head = self.store.rename(&head, &name(1000 + turn), &moved(turn), &meta()?)?;
                Ok(())
            },
            |turn| {
                git(&plain, &["mv", &name(1000 + turn), &moved(turn)])?;
                git(&plain, &["commit", "-q", "-m", "moved"])
            },
        )?;
        let goal = Some(Goal::RatioAtMost(1.0));
        Ok(Row::latency(
            "move one file of 10,000".to_owned(),
            &ours,
            "git mv, git commit",
            &theirs,
            goal,
            PROCESS.to_owned(),
        ))
    }

    /// A file that each of 200 versions changed, and the last of them.
    fn changed(&self) -> anyhow::Result<(VersionId, String)> {
        let (mut head, path) = (self.version.clone(), name(5000));
        for turn in 0..200 {
            let lines: String = (0..200).map(|line| format!("line {line} of {}\n", turn.min(line))).collect();
            head = self.store.write_file(Some(&head), &path, &mut lines.as_bytes(), u64::MAX, false, &meta()?)?;
        }
        Ok((head, path))
    }

    fn logs(&self) -> anyhow::Result<Row> {
        let (head, path) = self.changed()?;
        let (ours, theirs) = compare(
            TURNS,
            |_| {
                let (found, _) = self.store.history(&head, &path, 200, None)?;
                ensure!(found.len() == 200, "{} versions", found.len());
                Ok(())
            },
            |_| git(self.store.folder(), &["log", "-200", head.as_str(), "--", &path]),
        )?;
        Ok(Row::latency(
            "history of one file, 200 versions".to_owned(),
            &ours,
            "git log",
            &theirs,
            None,
            PROCESS.to_owned(),
        ))
    }

    fn blames(&self) -> anyhow::Result<Row> {
        let (head, path) = self.changed()?;
        let (ours, theirs) = compare(
            10,
            |_| {
                let _blamed = self.store.blame(&head, &path)?;
                Ok(())
            },
            |_| git(self.store.folder(), &["blame", head.as_str(), "--", &path]),
        )?;
        Ok(Row::latency(
            "blame of 200 lines, 200 versions".to_owned(),
            &ours,
            "git blame",
            &theirs,
            None,
            PROCESS.to_owned(),
        ))
    }

    /// Over HTTP, each durable and on the audit.
    async fn forks(&self) -> anyhow::Result<Row> {
        let mut tar = Vec::new();
        self.store.archive(&self.version, "", Format::Tar, &mut tar)?;
        let server = Server::start(0).await?;
        server.extract("", tar).await?;
        let plain = self.folder.join("plain");
        let (mut ours, mut theirs) = (Samples::default(), Samples::default());
        for turn in 0..WARM_UP + 4 * TURNS {
            let branch = format!("b{turn}");
            let start = Instant::now();
            git(&plain, &["branch", &branch])?;
            let their_time = start.elapsed();
            let start = Instant::now();
            server.fork(&branch).await?;
            let our_time = start.elapsed();
            if turn >= WARM_UP {
                theirs.push(their_time);
                ours.push(our_time);
            }
        }
        server.stop().await?;
        let note = "over HTTP, durable, judged, on the audit, against a process".to_owned();
        let goal = Some(Goal::RatioAtMost(1.0));
        Ok(Row::latency("fork of 10,000 files".to_owned(), &ours, "git branch", &theirs, goal, note))
    }
}

/// A large file up and down by the command line, against `cp`.
async fn large(folder: &Path) -> anyhow::Result<[Row; 2]> {
    let mib: u64 = match std::env::var_os("BAILEY_BENCH_LARGE") {
        Some(text) => text.to_str().context("BAILEY_BENCH_LARGE is no text")?.parse()?,
        None => 1024,
    };
    let local = folder.join("large");
    noise(&local, mib)?;
    let server = Server::start(0).await?;
    let bailey = |arguments: &[&str]| {
        let mut command = server.command();
        let status = command.args(arguments).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "bailey {arguments:?}: {status}");
        Ok(())
    };
    let (from, copy, back) = (path(&local)?, folder.join("copied"), folder.join("back"));
    let (mut up, mut up_copy) = (Samples::default(), Samples::default());
    let (mut down, mut down_copy) = (Samples::default(), Samples::default());
    for turn in 0..LARGE_TURNS {
        // Other content each turn: equal content would be there already.
        let mut file = fs::File::options().write(true).open(&local)?;
        file.write_all(&turn.to_be_bytes())?;
        file.sync_all()?;
        let start = Instant::now();
        fs::copy(&local, &copy)?;
        fs::File::open(&copy)?.sync_all()?;
        up_copy.push(start.elapsed());
        let start = Instant::now();
        bailey(&["put", from, "/tenants/bench/large"])?;
        up.push(start.elapsed());
        let start = Instant::now();
        fs::copy(&local, &copy)?;
        down_copy.push(start.elapsed());
        let start = Instant::now();
        bailey(&["get", "/tenants/bench/large", path(&back)?])?;
        down.push(start.elapsed());
    }
    server.stop().await?;
    let note = || format!("{mib} MiB over HTTP by the command line");
    Ok([
        Row::latency("a large file up".to_owned(), &up, "cp and fsync", &up_copy, None, note()),
        Row::latency("a large file down".to_owned(), &down, "cp", &down_copy, None, note()),
    ])
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is no text")
}

/// A file that nothing compresses.
fn noise(path: &Path, mib: u64) -> anyhow::Result<()> {
    let mut file = fs::File::create(path)?;
    let mut state = 1_u64;
    for _ in 0..mib {
        let mut piece = Vec::with_capacity(1 << 20);
        while piece.len() < 1 << 20 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            piece.extend_from_slice(&state.to_be_bytes());
        }
        file.write_all(&piece)?;
    }
    Ok(file.sync_all()?)
}
