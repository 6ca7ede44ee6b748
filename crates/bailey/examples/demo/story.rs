//! A tenant's file, a program that nobody reviewed, a new version, and a neighbour who gets nothing.

use std::path::{Path, PathBuf};

use anyhow::ensure;

use crate::scene;
use crate::server::Server;

const FOLDER: &str = "/tenants/acme/reports";

pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

pub(crate) fn play(server: &Server) -> anyhow::Result<()> {
    let acme = server.user("acme", "ana")?;
    let globex = server.user("globex", "gil")?;

    scene::title("acme uploads its sales and a program that nobody reviewed");
    for name in ["sales.csv", "summary.py"] {
        let local = examples().join("sales").join(name).canonicalize()?;
        let remote = format!("{FOLDER}/{name}");
        acme.openly(&["put", &local.to_string_lossy(), &remote], 0)?;
    }

    scene::title("The program runs in a sandbox of its own, over that one folder");
    let mount = format!("{FOLDER}:/data");
    acme.openly(&["run", "--mount", &mount, "--timeout", "30s", "--", "python3", "/data/summary.py"], 0)?;

    scene::title("What it wrote is a new version");
    acme.openly(&["log", FOLDER], 0)?;
    acme.openly(&["diff", FOLDER], 0)?;
    acme.openly(&["cat", &format!("{FOLDER}/report.md")], 0)?;
    let chart = acme.quietly(&["cat", &format!("{FOLDER}/chart.svg")])?;
    ensure!(chart.stdout.starts_with(b"<svg"), "the chart is no SVG");
    scene::say(&format!("chart.svg: {} bytes of SVG", chart.stdout.len()));

    scene::title("globex tries to read acme's files, and to run code over them");
    globex.refused(&["cat", &format!("{FOLDER}/sales.csv")], "own-tenant-only")?;
    globex.refused(&["run", "--mount", &mount, "--", "cat", "/data/sales.csv"], "own-tenant-only")?;
    globex.refused(&["cat", "/tenants/acme/no/such/file"], "own-tenant-only")?;

    scene::title("The program's exit code is the command's; a time limit ends everything");
    acme.openly(&["run", "--", "sh", "-c", "exit 7"], 7)?;
    acme.openly(&["run", "--timeout", "500ms", "--", "sh", "-c", "setsid sleep 600 & sleep 600"], 124)?;
    Ok(())
}
