//! A control with 10,000 tenants: of each something is noted, every second has policies of its own, every fourth labels.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use bailey_control::auth::{Freshness, Issuer};
use bailey_control::clock::{Clock, Rng};
use bailey_control::config::ControlConfig;
use bailey_control::control::{Caller, Control, Parts};
use bailey_control::db::Sqlite;
use bailey_control::event_log::EventLogs;
use bailey_control::threads::Threads;
use bailey_policy::{Policies, Principal};
use bailey_protocol::id::RequestId;
use bailey_protocol::path::TreePath;
use bailey_tree::Trees;
use tempfile::TempDir;
use tokio::sync::mpsc;

pub(crate) const TENANTS: usize = 10_000;
/// Policies of the operator's.
const OPERATOR_POLICIES: usize = 100;
/// Policies of a tenant that has some.
const OWN: usize = 3;
/// Labelled paths of a tenant that has some.
const LABELLED: usize = 20;

pub(crate) struct World {
    pub(crate) control: Control,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("bailey.db");
        // It makes the tables; what is in them is not what is measured.
        drop(Sqlite::open(&file)?);
        fill(&file)?;
        let issuer = Arc::new(Issuer::open(folder.path(), rustix::process::geteuid().as_raw())?);
        let (authenticator, keepers) = issuer.authenticator().trusting(Vec::new(), Freshness::default())?;
        let parts = Parts {
            config: ControlConfig::new("base".parse()?),
            policies: Policies::new(&operator()?)?,
            prover: None,
            authenticator,
            issuer: Arc::clone(&issuer),
            keepers,
            jwks: issuer.jwks()?,
            db: Arc::new(Sqlite::open(&file)?),
            trees: Trees::open(&folder.path().join("trees"))?,
            logs: EventLogs::open(&folder.path().join("runs"))?,
            node: mpsc::channel(1).0,
            git: mpsc::channel(1).0,
            clock: Clock::system(),
            rng: Rng::system(),
            threads: Threads::of_runtime(),
            audit_signer: issuer.audit_signer(),
        };
        let control = Control::start(parts).await.map_err(|error| anyhow!(error.cause_chain()))?;
        Ok(Self { control, _folder: folder })
    }

    /// One user of each tenant, and a path of the tenant's store.
    pub(crate) fn callers(&self) -> anyhow::Result<Vec<(Caller, TreePath)>> {
        let caller = |n: usize| {
            let principal = Principal {
                roles: ["member".to_owned(), format!("team-{}", n % 20)].into(),
                region: Some("eu".to_owned()),
                ..Principal::new(tenant(n).parse()?, "ana".parse()?)
            };
            let path = path(n).parse()?;
            Ok((Caller::new(principal, RequestId::mint(0, [0; 10])), path))
        };
        (0..TENANTS).map(caller).collect()
    }
}

pub(crate) fn tenant(n: usize) -> String {
    format!("tenant-{n}")
}

pub(crate) fn path(n: usize) -> String {
    format!("/tenants/{}/reports/2026/q{}/summary.md", tenant(n), n % 4)
}

/// The policies of a tenant's own.
pub(crate) fn own(n: usize) -> Vec<(String, String)> {
    let tenant = tenant(n);
    let texts = [
        format!(
            r#"forbid (principal, action in [Action::"tree_read", Action::"mount_read"], resource is Path)
            when {{ resource.path like "/tenants/{tenant}/payroll/*" }} unless {{ principal.roles.contains("finance") }};"#
        ),
        r#"forbid (principal, action == Action::"tree_read", resource is Path)
            when { resource.labels.contains("draft") && context has branch && context.branch == "release" };"#
            .to_owned(),
        r#"forbid (principal, action == Action::"run_create", resource) when { resource.memory_bytes > 536870912 };"#
            .to_owned(),
    ];
    let has_some = n.is_multiple_of(2);
    let named = texts.into_iter().enumerate().map(|(n, text)| (format!("own-{n}"), text));
    named.take(if has_some { OWN } else { 0 }).collect()
}

/// The shipped examples, and others such as operators write, up to the number.
pub(crate) fn operator() -> anyhow::Result<Vec<(String, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cedar") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, std::fs::read_to_string(&path)?));
        }
    }
    files.sort();
    let shipped: usize = files.iter().map(|(_, text)| text.matches("@id(").count()).sum();
    let mut text = String::new();
    for n in shipped..OPERATOR_POLICIES {
        let rule = match n % 5 {
            0 => format!(
                r#"forbid (principal is User, action in [Action::"tree_read", Action::"tree_write", Action::"mount_read"], resource is Path)
                when {{ resource.path like "/tenants/*/department-{n}/*" }} unless {{ principal.roles.contains("department-{n}") }};"#
            ),
            1 => format!(
                r#"forbid (principal is User, action in Action::"tree", resource is Path)
                when {{ resource.labels.contains("class-{n}") }} unless {{ principal.roles.contains("cleared-{n}") }};"#
            ),
            2 => format!(
                r#"forbid (principal is User, action in [Action::"tree_write", Action::"tree_delete"], resource is Path)
                when {{ context.branch like "release-{n}/*" && resource.protected }};"#
            ),
            3 => format!(
                r#"forbid (principal is User, action == Action::"run_create", resource)
                when {{ principal.tenant has plan && principal.tenant.plan == "plan-{n}" && resource.cpu_millis > 1000 }};"#
            ),
            _ => format!(
                r#"forbid (principal is User, action == Action::"tree_read", resource is Path)
                when {{ context.credential == "api_key" && resource.path like "*/secret-{n}/*" }};"#
            ),
        };
        writeln!(text, "@id(\"generated-{n}\") @reason(\"rule {n} says so\") {rule}")?;
    }
    files.push(("generated.cedar".to_owned(), text));
    Ok(files)
}

fn fill(file: &Path) -> anyhow::Result<()> {
    let mut db = rusqlite::Connection::open(file)?;
    let change = db.transaction()?;
    for n in 0..TENANTS {
        let tenant = tenant(n);
        change
            .prepare_cached("INSERT INTO tenant_facts (tenant, region, plan, set_by) VALUES (?1, 'eu', ?2, 'root')")?
            .execute([&tenant, ["free", "team", "regulated"].get(n % 3).copied().unwrap_or("free")])?;
        for (name, policy) in own(n) {
            change
                .prepare_cached("INSERT INTO tenant_policies (tenant, name, policy) VALUES (?1, ?2, ?3)")?
                .execute([&tenant, &name, &policy])?;
        }
        for label in 0..if n.is_multiple_of(4) { LABELLED } else { 0 } {
            // The first holds for what is read.
            let path = if label == 0 { "reports/2026".to_owned() } else { format!("folder-{label}/x") };
            change
                .prepare_cached("INSERT INTO labels (tenant, user, path, label) VALUES (?1, '', ?2, 'internal')")?
                .execute([&tenant, &path])?;
        }
    }
    Ok(change.commit()?)
}
