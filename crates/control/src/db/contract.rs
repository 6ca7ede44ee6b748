//! What every database has to do. A new one runs `suite!` with a way to open it.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use bailey_policy::{
    PathFacts, PathReadPermit, PathWritePermit, Policies, Principal, ReadAction, RunCreatePermit, RunFacts, RunPlan,
    WriteAction,
};
use bailey_protocol::api::{RunResult, RunStatus, Usage};
use bailey_protocol::id::{RunId, VersionId};
use bailey_protocol::node::Ending;
use bailey_protocol::path::{BranchName, Revision};
use bailey_protocol::wall::WallKind;

use super::*;

/// Opens the database that lies in a folder, as a server does at its start.
type Open = fn(&Path) -> Arc<dyn Db>;

/// One test for each rule of the contract.
macro_rules! suite {
    ($open:expr; $($rule:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let dir = tempfile::tempdir().unwrap();
                $crate::db::contract::$rule(dir.path(), $open).await;
            }
        )*
    };
    ($open:expr) => {
        $crate::db::contract::suite! { $open;
            a_run_lives_and_is_remembered
            another_tenant_sees_nothing
            a_list_is_the_users_own_newest_first_in_pages
            a_run_ends_once
            a_run_ends_with_its_refs_or_not_at_all
            runs_left_running_end_as_node_restarted
            a_key_makes_one_run
            a_key_is_the_users_own_and_is_forgotten
            a_hundred_retries_at_once_make_one_run
            refs_move_by_compare_and_swap
            several_refs_move_together_or_not_at_all
            one_of_64_racers_wins_each_round
            a_side_branch_is_kept
            stores_do_not_mix
            with_every_rule_gone_no_foreign_ref_moves
            a_failed_write_spoils_no_other
            everything_is_there_after_a_reopen
            the_audit_takes_what_was_decided
            each_tenant_has_its_own_chain
            forgetting_is_itself_on_the_audit
            a_protected_branch_moves_by_promotion_alone
            branches_come_and_go
            labels_are_kept_and_come_with_moves
            with_every_rule_gone_no_foreign_branch_or_label_changes
            tree_tokens_hold_until_they_end
            baselines_are_numbered
            subjects_are_remembered_with_their_age
            what_an_operator_disabled_no_admin_enables
            users_that_nobody_has_seen_are_disabled_up_to_a_number
            keys_are_the_tenants_own_and_end
            what_is_noted_of_a_tenant_is_kept
            quotas_are_set_changed_and_taken_back
            only_a_side_branch_that_stands_still_is_let_go
            what_is_kept_no_more_is_remembered_by_store
            a_purge_moves_every_branch_or_is_none
            a_purge_forgets_its_path_and_no_other
            with_every_rule_gone_no_foreign_store_is_purged
        }
    };
}
pub(crate) use suite;

pub(crate) mod audit;

pub(crate) use audit::{each_tenant_has_its_own_chain, forgetting_is_itself_on_the_audit};
mod identity;
pub(crate) use identity::{
    keys_are_the_tenants_own_and_end, subjects_are_remembered_with_their_age,
    users_that_nobody_has_seen_are_disabled_up_to_a_number, what_an_operator_disabled_no_admin_enables,
};
mod tenants;
pub(crate) use tenants::what_is_noted_of_a_tenant_is_kept;
mod tree_meta;
pub(crate) use tree_meta::{
    a_protected_branch_moves_by_promotion_alone, baselines_are_numbered, branches_come_and_go,
    labels_are_kept_and_come_with_moves, tree_tokens_hold_until_they_end,
    with_every_rule_gone_no_foreign_branch_or_label_changes,
};
mod usage;
pub(crate) use usage::{
    a_purge_forgets_its_path_and_no_other, a_purge_moves_every_branch_or_is_none,
    only_a_side_branch_that_stands_still_is_let_go, quotas_are_set_changed_and_taken_back,
    what_is_kept_no_more_is_remembered_by_store, with_every_rule_gone_no_foreign_store_is_purged,
};

fn principal(tenant: &str, user: &str) -> Principal {
    Principal::new(tenant.parse().unwrap(), user.parse().unwrap())
}

fn policies() -> &'static Policies {
    static POLICIES: LazyLock<Policies> = LazyLock::new(|| Policies::new(&[]).unwrap());
    &POLICIES
}

fn may_run(who: &Principal) -> RunCreatePermit {
    let plan = RunPlan {
        wall: WallKind::Container,
        template: "base".parse().unwrap(),
        root: false,
        limits: bailey_protocol::limits::Limits::default(),
    };
    policies().judge(who, 0).create_run(&plan).unwrap()
}

fn may_write(who: &Principal, path: &str, branch: &str) -> PathWritePermit {
    policies()
        .judge(who, 0)
        .write_path(WriteAction::Write, &PathFacts::plain(path.parse().unwrap()), &branch.parse().unwrap())
        .unwrap()
}

fn may_read(who: &Principal, path: &str, branch: &str) -> PathReadPermit {
    let branch = Revision::Branch(branch.parse().unwrap());
    policies().judge(who, 0).read_path(ReadAction::Read, &PathFacts::plain(path.parse().unwrap()), &branch).unwrap()
}

fn run_id(n: u64) -> RunId {
    RunId::mint(n, [7; 10])
}

fn version(n: u64) -> VersionId {
    format!("{n:040x}").parse().unwrap()
}

fn new_run(n: u64) -> NewRun {
    NewRun {
        run: run_id(n),
        command: format!("echo {n}"),
        mounts: vec![],
        created_ms: n,
        idempotency: None,
        audit: vec![],
    }
}

fn keyed(n: u64, key: &str, request: u8) -> NewRun {
    let idempotency = Some(Idempotency { key: key.parse().unwrap(), request: [request; 32] });
    NewRun { idempotency, ..new_run(n) }
}

fn exited(code: i32) -> RunEnd {
    RunEnd::Ended(RunResult {
        ending: Ending::Exited { code },
        denied: None,
        limits_hit: vec![],
        output_dropped: 0,
        versions: vec![],
        notices: vec![],
        more_notices: 0,
        usage: Usage { wall_ms: 5, cpu_us: 6, memory_peak_bytes: 7 },
    })
}

async fn read(db: &dyn Db, who: &Principal, run: &RunId) -> Option<RunRecord> {
    let facts = db.run_facts(who, run).await.unwrap()?;
    db.run(&policies().judge(who, 0).read_run(&facts).unwrap()).await.unwrap()
}

async fn list(db: &dyn Db, who: &Principal, limit: u32, after: Option<&RunId>) -> Vec<RunId> {
    let runs = db.runs(&policies().judge(who, 0).list_runs().unwrap(), limit, after).await.unwrap();
    runs.into_iter().map(|record| record.facts.run).collect()
}

async fn head(db: &dyn Db, who: &Principal, path: &str, branch: &str) -> Option<VersionId> {
    db.resolve(&may_read(who, path, branch).scope().unwrap()).await.unwrap()
}

pub(crate) async fn a_run_lives_and_is_remembered(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_run(&ana);
    let long = NewRun { command: format!("{}é{}", "x".repeat(199), "y".repeat(50)), ..new_run(1) };
    assert_eq!(db.create_run(&permit, long).await.unwrap(), RunCreated::New);
    let record = read(&*db, &ana, &run_id(1)).await.unwrap();
    assert_eq!((record.status(), record.created_ms, record.ended_ms), (RunStatus::Running, 1, None));
    assert_eq!(record.spec.command, "x".repeat(199));
    db.end_run(&permit, &run_id(1), exited(3), vec![], 9).await.unwrap();
    let record = read(&*db, &ana, &run_id(1)).await.unwrap();
    assert_eq!((record.status(), record.ended_ms, record.end.clone()), (RunStatus::Ended, Some(9), Some(exited(3))));
    assert_eq!(record.summary().ending, Some(Ending::Exited { code: 3 }));
    let failure = RunFailure { error: "exhausted".into(), message: "no room".into(), hint: "retry".into() };
    db.create_run(&permit, new_run(2)).await.unwrap();
    db.end_run(&permit, &run_id(2), RunEnd::Failed(failure.clone()), vec![], 9).await.unwrap();
    let record = read(&*db, &ana, &run_id(2)).await.unwrap();
    assert_eq!((record.status(), record.end), (RunStatus::Failed, Some(RunEnd::Failed(failure))));
    // The same id twice is refused and changes nothing.
    assert!(db.create_run(&permit, new_run(2)).await.is_err());
    assert_eq!(read(&*db, &ana, &run_id(2)).await.unwrap().status(), RunStatus::Failed);
}

pub(crate) async fn another_tenant_sees_nothing(dir: &Path, open: Open) {
    let (db, ana, eve) = (open(dir), principal("acme", "ana"), principal("globex", "ana"));
    db.create_run(&may_run(&ana), new_run(1)).await.unwrap();
    assert_eq!(db.run_facts(&eve, &run_id(1)).await.unwrap(), None);
    assert_eq!(db.run_facts(&eve, &run_id(2)).await.unwrap(), None);
    assert!(list(&*db, &eve, 10, None).await.is_empty());
    // A permit for made-up facts reaches the principal's tenant only.
    let facts = RunFacts::plain(run_id(1), eve.tenant.clone(), eve.user.clone());
    assert_eq!(db.run(&policies().judge(&eve, 0).read_run(&facts).unwrap()).await.unwrap(), None);
    let weak = Policies::weakened("permit (principal, action, resource);", &[]).unwrap();
    let facts = RunFacts { tenant: ana.tenant.clone(), ..facts };
    assert_eq!(db.run(&weak.judge(&eve, 0).read_run(&facts).unwrap()).await.unwrap(), None);
    let ended = db.end_run(&may_run(&eve), &run_id(1), exited(0), vec![], 9).await;
    assert!(matches!(ended, Err(DbError::RunOver { .. })), "{ended:?}");
    assert_eq!(read(&*db, &ana, &run_id(1)).await.unwrap().status(), RunStatus::Running);
}

pub(crate) async fn a_list_is_the_users_own_newest_first_in_pages(dir: &Path, open: Open) {
    let (db, ana, bob) = (open(dir), principal("acme", "ana"), principal("acme", "bob"));
    for n in 1..=5 {
        db.create_run(&may_run(&ana), new_run(n)).await.unwrap();
    }
    db.create_run(&may_run(&bob), new_run(6)).await.unwrap();
    assert_eq!(list(&*db, &ana, 2, None).await, [run_id(5), run_id(4)]);
    assert_eq!(list(&*db, &ana, 2, Some(&run_id(4))).await, [run_id(3), run_id(2)]);
    assert_eq!(list(&*db, &ana, u32::MAX, Some(&run_id(2))).await, [run_id(1)]);
    assert_eq!(list(&*db, &bob, 10, None).await, [run_id(6)]);
    assert!(list(&*db, &ana, 0, None).await.is_empty());
}

pub(crate) async fn a_run_ends_once(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_run(&ana);
    db.create_run(&permit, new_run(1)).await.unwrap();
    db.end_run(&permit, &run_id(1), exited(0), vec![], 5).await.unwrap();
    for run in [run_id(1), run_id(2)] {
        let again = db.end_run(&permit, &run, exited(1), vec![], 6).await;
        assert!(matches!(again, Err(DbError::RunOver { .. })), "{again:?}");
    }
    assert_eq!(read(&*db, &ana, &run_id(1)).await.unwrap().end, Some(exited(0)));
}

pub(crate) async fn a_run_ends_with_its_refs_or_not_at_all(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let (permit, write) = (may_run(&ana), may_write(&ana, "/tenants/acme/x", "main"));
    let step = |from: Option<u64>, to| vec![RefMove::new(&write, from.map(version), version(to)).unwrap()];
    let now = || async { head(&*db, &ana, "/tenants/acme", "main").await };
    db.create_run(&permit, new_run(1)).await.unwrap();
    let moved = db.end_run(&permit, &run_id(1), exited(0), step(Some(7), 8), 5).await;
    assert!(matches!(moved, Err(DbError::RefMoved { .. })), "{moved:?}");
    assert_eq!(read(&*db, &ana, &run_id(1)).await.unwrap().end, None);
    db.end_run(&permit, &run_id(1), exited(0), step(None, 1), 5).await.unwrap();
    assert_eq!(now().await, Some(version(1)));
    let over = db.end_run(&permit, &run_id(1), exited(0), step(Some(1), 2), 6).await;
    assert!(matches!(over, Err(DbError::RunOver { .. })), "{over:?}");
    assert_eq!(now().await, Some(version(1)));
}

pub(crate) async fn runs_left_running_end_as_node_restarted(dir: &Path, open: Open) {
    let (ana, eve) = (principal("acme", "ana"), principal("globex", "eve"));
    let db = open(dir);
    db.create_run(&may_run(&ana), new_run(1)).await.unwrap();
    db.create_run(&may_run(&eve), new_run(2)).await.unwrap();
    db.create_run(&may_run(&ana), new_run(3)).await.unwrap();
    db.end_run(&may_run(&ana), &run_id(3), exited(0), vec![], 4).await.unwrap();
    drop(db);
    let db = open(dir);
    let lost = [(ana.tenant.clone(), run_id(1)), (eve.tenant.clone(), run_id(2))];
    assert_eq!(db.abandon_running(10).await.unwrap(), lost);
    for (who, run) in [(&ana, run_id(1)), (&eve, run_id(2))] {
        let record = read(&*db, who, &run).await.unwrap();
        assert_eq!((record.summary().ending, record.ended_ms), (Some(Ending::NodeRestarted), Some(10)));
    }
    assert_eq!(read(&*db, &ana, &run_id(3)).await.unwrap().end, Some(exited(0)));
    assert!(db.abandon_running(11).await.unwrap().is_empty());
}

pub(crate) async fn a_key_makes_one_run(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_run(&ana);
    assert_eq!(db.create_run(&permit, keyed(1, "k", 1)).await.unwrap(), RunCreated::New);
    assert_eq!(db.create_run(&permit, keyed(2, "k", 1)).await.unwrap(), RunCreated::Replayed(run_id(1)));
    let other = db.create_run(&permit, keyed(3, "k", 2)).await;
    assert!(matches!(other, Err(DbError::IdempotencyConflict)), "{other:?}");
    assert_eq!(db.create_run(&permit, keyed(4, "l", 2)).await.unwrap(), RunCreated::New);
    assert_eq!(list(&*db, &ana, 10, None).await, [run_id(4), run_id(1)]);
    // Looking beforehand says the same.
    for (key, request, first) in [("k", 1, Some(run_id(1))), ("l", 2, Some(run_id(4))), ("m", 1, None)] {
        let idempotency = keyed(6, key, request).idempotency.unwrap();
        assert_eq!(db.earlier_run(&permit, &idempotency, 6).await.unwrap(), first, "{key}");
    }
    let other = db.earlier_run(&permit, &keyed(6, "k", 2).idempotency.unwrap(), 6).await;
    assert!(matches!(other, Err(DbError::IdempotencyConflict)), "{other:?}");
    drop(db);
    assert_eq!(open(dir).create_run(&permit, keyed(5, "k", 1)).await.unwrap(), RunCreated::Replayed(run_id(1)));
}

pub(crate) async fn a_key_is_the_users_own_and_is_forgotten(dir: &Path, open: Open) {
    let db = open(dir);
    for (n, who) in [(1, principal("acme", "ana")), (2, principal("acme", "bob")), (3, principal("globex", "ana"))] {
        assert_eq!(db.create_run(&may_run(&who), keyed(n, "k", 1)).await.unwrap(), RunCreated::New);
    }
    let permit = may_run(&principal("acme", "ana"));
    let within = NewRun { created_ms: IDEMPOTENCY_MS, ..keyed(4, "k", 1) };
    assert_eq!(db.create_run(&permit, within).await.unwrap(), RunCreated::Replayed(run_id(1)));
    let late = NewRun { created_ms: IDEMPOTENCY_MS + 2, ..keyed(5, "k", 2) };
    let forgotten = late.idempotency.clone().unwrap();
    assert_eq!(db.earlier_run(&permit, &forgotten, late.created_ms).await.unwrap(), None);
    assert_eq!(db.create_run(&permit, late).await.unwrap(), RunCreated::New);
}

pub(crate) async fn a_hundred_retries_at_once_make_one_run(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_run(&ana);
    let tries = (1..=100).map(|n| db.create_run(&permit, keyed(n, "k", 1)));
    let answers = futures_util::future::join_all(tries).await;
    let made: Vec<_> = list(&*db, &ana, 200, None).await;
    assert_eq!(made.len(), 1);
    let new = answers.iter().filter(|answer| matches!(answer, Ok(RunCreated::New))).count();
    let replayed = answers.iter().filter(|answer| matches!(answer, Ok(RunCreated::Replayed(run)) if made[0] == *run));
    assert_eq!((new, replayed.count()), (1, 99));
}

pub(crate) async fn refs_move_by_compare_and_swap(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_write(&ana, "/tenants/acme/x", "main");
    let step = |from: Option<u64>, to| RefMove::new(&permit, from.map(version), version(to)).unwrap();
    assert_eq!(head(&*db, &ana, "/tenants/acme/x", "main").await, None);
    let wrong = db.move_refs(vec![step(Some(1), 2)]).await;
    assert!(matches!(wrong, Err(DbError::RefMoved { head: None, .. })), "{wrong:?}");
    db.move_refs(vec![step(None, 1)]).await.unwrap();
    for from in [None, Some(2)] {
        match db.move_refs(vec![step(from, 3)]).await {
            Err(DbError::RefMoved { branch, head }) => {
                assert_eq!((branch, head), (BranchName::main(), Some(version(1))))
            }
            other => panic!("{other:?}"),
        }
    }
    db.move_refs(vec![step(Some(1), 2)]).await.unwrap();
    assert_eq!(head(&*db, &ana, "/tenants/acme/y", "main").await, Some(version(2)));
    assert_eq!(head(&*db, &ana, "/tenants/acme/y", "other").await, None);
    // A version names itself.
    let at = Revision::Version(version(9));
    let permit = policies()
        .judge(&ana, 0)
        .read_path(ReadAction::Read, &PathFacts::plain("/tenants/acme".parse().unwrap()), &at)
        .unwrap();
    assert_eq!(db.resolve(&permit.scope().unwrap()).await.unwrap(), Some(version(9)));
}

pub(crate) async fn several_refs_move_together_or_not_at_all(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let shared = may_write(&ana, "/tenants/acme/x", "main");
    let own = may_write(&ana, "/tenants/acme/users/ana/x", "main");
    let step = |permit, from: Option<u64>, to| RefMove::new(permit, from.map(version), version(to)).unwrap();
    db.move_refs(vec![step(&shared, None, 1), step(&own, None, 2)]).await.unwrap();
    let half = db.move_refs(vec![step(&shared, Some(1), 3), step(&own, Some(1), 4)]).await;
    assert!(matches!(half, Err(DbError::RefMoved { .. })), "{half:?}");
    assert_eq!(head(&*db, &ana, "/tenants/acme", "main").await, Some(version(1)));
    assert_eq!(head(&*db, &ana, "/tenants/acme/users/ana", "main").await, Some(version(2)));
    // In order: the second sees the first.
    db.move_refs(vec![step(&shared, Some(1), 3), step(&shared, Some(3), 5)]).await.unwrap();
    assert_eq!(head(&*db, &ana, "/tenants/acme", "main").await, Some(version(5)));
    db.move_refs(vec![]).await.unwrap();
}

pub(crate) async fn one_of_64_racers_wins_each_round(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_write(&ana, "/tenants/acme/x", "main");
    let mut at = None;
    for round in 1..=20_u64 {
        let tries = (0..64).map(|racer| {
            let to = version(round * 100 + racer);
            let step = RefMove::new(&permit, at.clone(), to.clone()).unwrap();
            let db = Arc::clone(&db);
            let racer: DbFuture<'static, VersionId> =
                Box::pin(async move { db.move_refs(vec![step]).await.map(|()| to) });
            racer
        });
        let mut racers = tokio::task::JoinSet::new();
        for racer in tries {
            racers.spawn(racer);
        }
        let answers = racers.join_all().await;
        let won: Vec<_> = answers.iter().flatten().collect();
        assert_eq!(won.len(), 1);
        for lost in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            assert!(matches!(lost, DbError::RefMoved { head: Some(now), .. } if now == won[0]), "{lost:?}");
        }
        at = Some(won[0].clone());
        assert_eq!(head(&*db, &ana, "/tenants/acme", "main").await, at);
    }
}

pub(crate) async fn a_side_branch_is_kept(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_write(&ana, "/tenants/acme/x", "main");
    let side = BranchName::of_run(&run_id(1));
    db.move_refs(vec![
        RefMove::new(&permit, None, version(1)).unwrap(),
        RefMove::side_branch(&permit, &run_id(1), None, version(2)).unwrap(),
        RefMove::side_branch(&permit, &run_id(1), Some(version(2)), version(3)).unwrap(),
    ])
    .await
    .unwrap();
    let heads = db.heads(&permit.scope().unwrap()).await.unwrap();
    assert_eq!(heads, [(BranchName::main(), version(1)), (side, version(3))]);
}

pub(crate) async fn stores_do_not_mix(dir: &Path, open: Open) {
    let db = open(dir);
    let places = [("acme", "ana", "/tenants/acme"), ("acme", "ana", "/tenants/acme/users/ana")];
    let others = [("acme", "bob", "/tenants/acme/users/bob"), ("globex", "ana", "/tenants/globex")];
    let all = places.into_iter().chain(others).chain([("globex", "ana", "/tenants/globex/users/ana")]);
    for (n, (tenant, user, path)) in (1..).zip(all.clone()) {
        let permit = may_write(&principal(tenant, user), path, "main");
        db.move_refs(vec![RefMove::new(&permit, None, version(n)).unwrap()]).await.unwrap();
    }
    for (n, (tenant, user, path)) in (1..).zip(all) {
        let permit = may_write(&principal(tenant, user), path, "main");
        let heads = db.heads(&permit.scope().unwrap()).await.unwrap();
        assert_eq!(heads, [(BranchName::main(), version(n))]);
    }
}

pub(crate) async fn with_every_rule_gone_no_foreign_ref_moves(dir: &Path, open: Open) {
    let (db, ana, eve) = (open(dir), principal("acme", "ana"), principal("globex", "ana"));
    let mine = may_write(&ana, "/tenants/acme/x", "main");
    db.move_refs(vec![RefMove::new(&mine, None, version(1)).unwrap()]).await.unwrap();
    let weak = Policies::weakened("permit (principal, action, resource);", &[]).unwrap();
    let path = PathFacts::plain("/tenants/acme/x".parse().unwrap());
    let write = weak.judge(&eve, 0).write_path(WriteAction::Write, &path, &BranchName::main()).unwrap();
    assert!(RefMove::new(&write, Some(version(1)), version(2)).is_err());
    assert!(RefMove::side_branch(&write, &run_id(1), None, version(2)).is_err());
    let read = weak.judge(&eve, 0).read_path(ReadAction::Read, &path, &Revision::Branch(BranchName::main())).unwrap();
    assert!(read.scope().is_err());
    assert_eq!(head(&*db, &ana, "/tenants/acme/x", "main").await, Some(version(1)));
}

pub(crate) async fn a_failed_write_spoils_no_other(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_run(&ana);
    db.create_run(&permit, new_run(1)).await.unwrap();
    // Half of these collide with run 1 after their key was written; all wait together.
    let writes = (2..=200).map(|n| {
        let id = if n % 2 == 0 { 1 } else { n };
        db.create_run(&permit, NewRun { run: run_id(id), ..keyed(n, &format!("k{n}"), 1) })
    });
    let answers = futures_util::future::join_all(writes).await;
    for (n, answer) in (2..=200).zip(answers) {
        assert_eq!(answer.is_ok(), n % 2 == 1, "{n}: {answer:?}");
    }
    assert_eq!(list(&*db, &ana, 200, None).await.len(), 100);
    // The key of a failed one was undone with it.
    assert_eq!(db.create_run(&permit, keyed(1000, "k2", 9)).await.unwrap(), RunCreated::New);
}

pub(crate) async fn everything_is_there_after_a_reopen(dir: &Path, open: Open) {
    let ana = principal("acme", "ana");
    let (run, write) = (may_run(&ana), may_write(&ana, "/tenants/acme/x", "main"));
    for round in 0..3_u64 {
        let db = open(dir);
        db.create_run(&run, new_run(round + 1)).await.unwrap();
        let from = (round > 0).then(|| version(round));
        db.move_refs(vec![RefMove::new(&write, from, version(round + 1)).unwrap()]).await.unwrap();
        drop(db);
        let db = open(dir);
        assert_eq!(list(&*db, &ana, 10, None).await.len(), usize::try_from(round + 1).unwrap());
        assert_eq!(head(&*db, &ana, "/tenants/acme", "main").await, Some(version(round + 1)));
    }
}

pub(crate) async fn the_audit_takes_what_was_decided(dir: &Path, open: Open) {
    let (db, ana) = (open(dir), principal("acme", "ana"));
    let permit = may_run(&ana);
    db.audit(AuditEntry::allowed(permit.grant(), "ok", None, 5)).await.unwrap();
    let path = PathFacts::plain("/tenants/globex/x".parse().unwrap());
    let denied = policies().judge(&ana, 0).write_path(WriteAction::Write, &path, &BranchName::main()).unwrap_err();
    db.audit(AuditEntry::denied(&ana, &denied, None, 6)).await.unwrap();
    let audit = vec![AuditEntry::allowed(permit.grant(), "", None, 7)];
    db.create_run(&permit, NewRun { audit, ..new_run(1) }).await.unwrap();
}
