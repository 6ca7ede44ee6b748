//! One seed: some lives of one server, most of which end badly, and what has to be true after the last.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bailey_protocol::quota::TenantQuota;
use http::Method;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tokio::task::JoinSet;

use crate::client::{Client, FILES, Story};
use crate::fate::{Dice, Fate};
use crate::life::{self, Answer, Asking, Ground, Life, MOST_RUNS, TIGHT};
use crate::store::scratch_folder;
use crate::wall::LINGER;

/// What each of four clients does in each life.
pub const ACTS: u64 = 2;
/// Longest that runs may take to end.
const PATIENCE: Duration = Duration::from_secs(200);

/// Lives through a seed; says what was wrong.
pub fn play(seed: u64, fate: &Arc<Fate>) -> Vec<String> {
    let folder = scratch_folder();
    life::prepare(folder.path());
    let mut dice = Dice::new(seed ^ 0x5eed);
    // By dice of its own: a seed that has none of it tells the story that it told without.
    let cuts = Dice::new(seed ^ 0xc075).one_in(6);
    let mut ground = Ground {
        folder: folder.path().to_owned(),
        disk: Arc::default(),
        fate: Arc::clone(fate),
        quota: if dice.one_in(4) { TIGHT } else { TenantQuota::UNLIMITED },
        cuts,
        parked: usize::try_from(dice.below(2)).unwrap(),
    };
    if cuts {
        ground.quota.versions = 1;
    }
    let story = Arc::new(Story::new(Arc::clone(fate)));
    let lives = if dice.one_in(3) { 2 } else { 1 };
    for _ in 0..lives {
        one_life(&ground, &story, &mut dice, false);
    }
    one_life(&ground, &story, &mut dice, true);
    check_audit(folder.path(), &story);
    let mut faults = story.model().faults.clone();
    faults.truncate(5);
    faults
}

fn one_life(ground: &Ground, story: &Arc<Story>, dice: &mut Dice, is_last: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let fate = Arc::clone(&ground.fate);
    let crashes = !is_last && !dice.one_in(3);
    let (faults, dies_at) = match (is_last, crashes) {
        (true, _) => (0, None),
        (false, true) => (*dice.pick(&[0, 50, 200]), Some(dice.below(250))),
        (false, false) => (*dice.pick(&[0, 30, 100]), None),
    };
    runtime.block_on(async {
        fate.begin_life(faults, dies_at);
        let living = async {
            match Life::begin(ground).await {
                Ok(life) => live(ground, Arc::new(life), story, dice, is_last).await,
                Err(why) if fate.failed() > 0 || fate.is_dead() => fate.note(|| format!("does not start: {why}")),
                Err(why) => story.model().fault(format!("does not start: {why}")),
            }
        };
        tokio::select! {
            biased;
            () = fate.death() => fate.note(|| "dies".to_owned()),
            () = living => {}
            () = pace(&fate) => {}
        }
        story.model().life_over();
        fate.end_life();
    });
    drop(runtime);
    if crashes {
        fate.dice(|dice| ground.disk.lose_power(dice));
    }
}

/// Keeps time from running ahead while bytes are on their way through a socket: the runtime lets it go on to whatever
/// comes next as soon as no task is ready.
async fn pace(fate: &Fate) {
    let mut step = 1;
    loop {
        let before = fate.steps();
        tokio::time::sleep(Duration::from_millis(step)).await;
        step = if fate.steps() == before { (2 * step).min(256) } else { 1 };
    }
}

async fn live(ground: &Ground, life: Arc<Life>, story: &Arc<Story>, dice: &mut Dice, is_last: bool) {
    let client = |who: usize, dice: &mut Dice| {
        let dice = Dice::new(dice.roll());
        Client { story: Arc::clone(story), life: Arc::clone(&life), who, dice }
    };
    if !is_last {
        let mut clients = JoinSet::new();
        for who in 0..story.people.len() {
            clients.spawn(client(who, dice).act(ACTS));
        }
        if ground.cuts {
            clients.spawn(client(0, dice).keep_collecting());
            clients.spawn(client(0, dice).hold());
            clients.spawn(client(0, dice).hold());
        }
        while let Some(done) = clients.join_next().await {
            done.unwrap();
        }
    }
    story.fate.calm();
    if is_last {
        let mut again = client(0, dice);
        for unsure in story.take_unsure() {
            again.again(unsure).await;
        }
    }
    // An end that could not be recorded is recorded by the next life.
    if story.fate.failed() == 0 {
        all_end(&life, story).await;
    }
    if is_last {
        if dice.one_in(5) {
            burst(&life, story).await;
        }
        // Twice: what is garbage goes in the second.
        for _ in 0..dice.below(3) {
            client(0, dice).collect_garbage().await;
        }
        for path in FILES {
            client(0, dice).read(path).await;
        }
        check_versions(ground, &life, story).await;
        client(1, dice).secret().await;
        check_usage(ground, &life, story).await;
    }
    // Longer than a collector may be silent: what takes longer than a server waits is left to the jail.
    life.control.drain(PATIENCE, PATIENCE).await;
    life.node.shutdown(Duration::from_secs(1)).await;
    let left = life.wall.alive();
    if left > 0 {
        story.model().fault(format!("{left} sandboxes are left after the end"));
    }
}

async fn ask(life: &Life, who: &life::Who, method: Method, path: &str, body: String) -> Answer {
    life.ask(Asking { who, method, path, headers: &[], body: body.into_bytes() }).await
}

/// Waits until every run is over, as everybody sees it.
async fn all_end(life: &Life, story: &Story) {
    let begun = tokio::time::Instant::now();
    // The last of them is of another tenant, and runs nothing.
    for who in &story.people[..3] {
        loop {
            let runs = ask(life, who, Method::GET, "/v1/runs?limit=200", String::new()).await;
            if runs.status != 200 {
                story.model().fault(format!("runs cannot be listed: {}", runs.text()));
                return;
            }
            let runs = runs.json()["runs"].as_array().cloned().unwrap_or_default();
            if runs.iter().all(|run| run["status"] != "running") {
                break;
            }
            if begun.elapsed() > PATIENCE {
                story.model().fault(format!("runs do not end: {runs:?}"));
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Of more runs at once than there may be, exactly as many begin as may.
async fn burst(life: &Arc<Life>, story: &Arc<Story>) {
    let mut asked = JoinSet::new();
    for _ in 0..MOST_RUNS + 2 {
        let (life, who) = (Arc::clone(life), story.people[0].clone());
        let body = json!({ "command": ["sim", LINGER], "detach": true }).to_string();
        asked.spawn(async move { ask(&life, &who, Method::POST, "/v1/runs", body).await.status.as_u16() });
    }
    let mut statuses = asked.join_all().await;
    statuses.sort_unstable();
    story.fate.note(|| format!("burst {statuses:?}"));
    if statuses != [202, 202, 429, 429] {
        story.model().fault(format!("of {} runs at once begin those that get 202: {statuses:?}", MOST_RUNS + 2));
    }
}

/// Each version that a write was answered with holds what was written, where old ones are kept.
async fn check_versions(ground: &Ground, life: &Life, story: &Story) {
    let versions = story.model().versions.clone();
    for (path, version, content) in versions.iter().rev().take(2) {
        let url = format!("/v1/tree{path}?ref={version}");
        let found = ask(life, &story.people[0], Method::GET, &url, String::new()).await;
        if ground.cuts && found.status == 410 {
            continue;
        }
        if found.status != 200 || found.text() != *content {
            let found = found.text();
            story.model().fault(format!("{path} at {version} was written as {content}, and is {found}"));
        }
    }
}

/// What is counted is what is on disk, and within the quota but for deletions.
async fn check_usage(ground: &Ground, life: &Life, story: &Story) {
    let path = "/v1/operator/tenants/acme/quota";
    let told = ask(life, &story.operator, Method::GET, path, String::new()).await.json();
    let told = told["usage"]["bytes"].as_u64();
    let there = bytes_below(&ground.folder.join("trees/acme"));
    if told != Some(there) {
        story.model().fault(format!("{told:?} bytes are counted, {there} are there"));
    }
}

/// Bytes of all packs below a folder.
fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let mut bytes = 0;
    for entry in entries.map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        if metadata.is_dir() {
            bytes += bytes_below(&path);
        } else if path.parent().is_some_and(|parent| parent.ends_with("objects/pack"))
            && path.with_extension("idx").exists()
        {
            bytes += metadata.len();
        }
    }
    bytes
}

/// The audit is whole, and has a row of everything that was decided.
fn check_audit(folder: &Path, story: &Story) {
    let file = life::database(folder);
    let reports = bailey_control::db::verify_audit(&file, &life::audit_keys(), None, None).unwrap();
    for report in reports.iter().filter(|report| !report.is_whole()) {
        story.model().fault(format!("the audit is not whole: {report:?}"));
    }
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    let mut query = db
        .prepare("SELECT seq, time_ms, request, action, decision, outcome FROM audit_rows ORDER BY chain, seq")
        .unwrap();
    let mut rows = query.query([]).unwrap();
    let mut found = BTreeSet::new();
    while let Some(row) = rows.next().unwrap() {
        let (seq, time_ms): (i64, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
        let [request, action, decision, outcome] =
            [2, 3, 4, 5].map(|at| row.get::<_, Option<String>>(at).unwrap().unwrap_or_default());
        story.fate.note(|| format!("audit {seq} {time_ms} {request} {action} {decision} {outcome}"));
        found.insert((request, decision));
    }
    let mut model = story.model();
    for decided in model.decided.clone() {
        let decision = if decided.allowed { "allowed" } else { "denied" };
        if !found.contains(&(decided.request.clone(), decision.to_owned())) {
            model.fault(format!("{} was answered ({decision}) and is not on the audit", decided.what));
        }
    }
}
