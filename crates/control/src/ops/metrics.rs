//! Figures about the server as a whole, for operators. Others add theirs to [`figures`].

use std::fmt::Write as _;

use bailey_policy::SystemAction;
use bailey_protocol::api::policy::PolicyState;
use bailey_protocol::quota::TenantUsage;

use super::upkeep::UpkeepTotals;
use crate::api_error::ApiError;
use crate::auth::KeyAge;
use crate::control::{Control, OperatorCaller};

/// One figure.
#[derive(Debug, Clone)]
struct Figure {
    name: &'static str,
    help: &'static str,
    kind: &'static str,
    /// Label and value, where it has one.
    label: Option<(&'static str, String)>,
    value: u64,
}

impl Figure {
    fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind: "gauge", label: None, value }
    }

    fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, kind: "counter", label: None, value }
    }

    fn of(self, label: &'static str, is: &str) -> Self {
        Self { label: Some((label, is.to_owned())), ..self }
    }
}

/// Everything, as Prometheus reads it.
///
/// # Errors
/// When it is denied.
pub async fn show(control: &Control, caller: &OperatorCaller) -> Result<String, ApiError> {
    let permit = control.operator_may(caller, SystemAction::Metrics).await?;
    control.operator_audited(caller, &permit, Ok(text(&figures(control)))).await
}

fn figures(control: &Control) -> Vec<Figure> {
    let rows = control.db().audit_appended();
    let denials = control.db().audit_denials();
    let decisions = |decision, value| {
        let help = "Decisions that are on the audit, since the server started.";
        Figure::counter("bailey_decisions_total", help, value).of("decision", decision)
    };
    let waiting = control.admission().waiting() + control.disk_admission().waiting();
    let mut all = vec![
        decisions("allowed", rows.saturating_sub(denials)),
        decisions("denied", denials),
        Figure::gauge("bailey_runs", "Runs that are going.", control.admission().going() as u64),
        Figure::gauge("bailey_runs_waiting", "Runs that wait for room, or for a large disk.", waiting as u64),
    ];
    all.extend(policies(&control.policy_state()));
    all.extend(issuers(control.key_ages()));
    all.extend(upkeep(control.upkeep_totals()));
    all.extend(trees(control.trees().counted()));
    let shut = control.trees().all_shut().len() as u64;
    all.push(Figure::gauge("bailey_stores_shut", "Stores that are refused, as they cannot be read.", shut));
    all
}

fn policies(state: &PolicyState) -> [Figure; 3] {
    let refused = u64::from(state.refused.is_some());
    let unproven = u64::from(!state.is_proven());
    [
        Figure::gauge("bailey_policies", "Policies in force, tenants' own aside.", state.policies),
        Figure::gauge("bailey_policies_refused", "1 while the last change of policies is refused.", refused),
        Figure::gauge(
            "bailey_policies_unproven",
            "1 while it is not proven that policies keep tenants apart.",
            unproven,
        ),
    ]
}

/// Names of issuers are the operator's own, from its configuration.
fn issuers(ages: Vec<KeyAge>) -> Vec<Figure> {
    let age = |KeyAge { issuer, age, .. }: &KeyAge| {
        let help = "Seconds since an issuer's keys were fetched; absent while there are none.";
        Some(Figure::gauge("bailey_issuer_keys_age_seconds", help, age.as_ref()?.as_secs()).of("issuer", issuer))
    };
    let failing = |KeyAge { issuer, failing, .. }: &KeyAge| {
        let help = "1 while an issuer's keys cannot be had.";
        Figure::gauge("bailey_issuer_failing", help, u64::from(*failing)).of("issuer", issuer)
    };
    ages.iter().filter_map(age).chain(ages.iter().map(failing)).collect()
}

fn upkeep(totals: UpkeepTotals) -> [Figure; 5] {
    let UpkeepTotals { cycles, failures, removed, freed_bytes, expired } = totals;
    [
        Figure::counter("bailey_upkeep_cycles_total", "Cycles of garbage collection of a store.", cycles),
        Figure::counter("bailey_upkeep_failures_total", "Stores that could not be looked after.", failures),
        Figure::counter("bailey_upkeep_removed_total", "Objects that upkeep removed.", removed),
        Figure::counter("bailey_upkeep_freed_bytes_total", "Bytes that upkeep freed.", freed_bytes),
        Figure::counter("bailey_upkeep_expired_total", "Versions that went beyond what is kept.", expired),
    ]
}

/// Tenants whom nobody has asked about yet are not counted: to count them all reads every folder.
fn trees((tenants, usage): (u64, TenantUsage)) -> [Figure; 3] {
    let counted = "Tenants whose trees were counted since the server started.";
    [
        Figure::gauge("bailey_tree_tenants", counted, tenants),
        Figure::gauge("bailey_tree_bytes", "Bytes of the trees of those tenants.", usage.bytes),
        Figure::gauge("bailey_tree_objects", "Files, folders and versions of those tenants.", usage.files),
    ]
}

fn text(figures: &[Figure]) -> String {
    let mut out = String::new();
    let mut last = "";
    for Figure { name, help, kind, label, value } in figures {
        if *name != last {
            // Writing to a string does not fail.
            let _written = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n").is_ok();
            last = name;
        }
        let label = label.as_ref().map(|(label, is)| format!("{{{label}=\"{}\"}}", escaped(is))).unwrap_or_default();
        let _written = writeln!(out, "{name}{label} {value}").is_ok();
    }
    out
}

/// As the format wants values of labels.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_explained_once() {
        let figure = |label, value| Figure::counter("x", "X.", value).of("a", label);
        assert_eq!(
            text(&[figure("b", 1), figure("c\"\n\\", 2)]),
            "# HELP x X.\n# TYPE x counter\nx{a=\"b\"} 1\nx{a=\"c\\\"\\n\\\\\"} 2\n"
        );
    }
}
