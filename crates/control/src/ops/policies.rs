//! A tenant's own policies, why something is allowed or denied, and what other policies would have said.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use bailey_policy::explain::Explanation;
use bailey_policy::request::Kind;
use bailey_policy::{
    Action, AdminAction, AdminPermit, ExplainPermit, Judge, PathFacts, Policies, PolicyError, Principal, RunFacts,
    RunPlan, SystemAction,
};
use bailey_protocol::api::policy::{
    DryRunAnswer, DryRunRequest, DryRunRow, ExplainAnswer, ExplainChange, ExplainRequest, ExplainSearched,
    MAX_FOLDER_BYTES, MAX_FOLDER_FILES, PolicyState, TenantPolicy, TenantPolicyList,
};
use bailey_protocol::path::BranchName;
use bailey_protocol::wall::WallKind;

use crate::api_error::{ApiError, ErrorKind};
use crate::control::{Caller, Control, OperatorCaller};
use crate::db::{DECISION_MS, DecisionSeen};
use crate::threads::blocking;

/// Most requests that a dry run lists.
const MAX_ROWS: usize = 1000;
/// How long whoever asks for an explanation waits for its tenant's others.
const PATIENCE: Duration = Duration::from_secs(20);

/// The tenant's own policies.
///
/// # Errors
/// When it is denied.
pub async fn list(control: &Control, caller: &Caller) -> Result<TenantPolicyList, ApiError> {
    let asked = control.judge(caller).await?.admin(AdminAction::PolicyRead);
    let permit = control.permit(caller, asked).await?;
    let result = async {
        let own = control.db().policies_of(permit.tenant()).await?;
        let policies = own.into_iter().map(|(name, policy)| TenantPolicy { name, policy }).collect();
        Ok(TenantPolicyList { policies })
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// Adds one of the tenant's own policies, or replaces it. From the next decision on it holds, and what goes on is
/// judged again.
///
/// # Errors
/// When it is denied, is not one valid `forbid`, or there are too many.
pub async fn put(control: &Control, caller: &Caller, name: &str, text: &str) -> Result<TenantPolicy, ApiError> {
    let asked = control.judge(caller).await?.admin(AdminAction::PolicyWrite);
    let permit = Arc::new(control.permit(caller, asked).await?);
    let (of, by, name, text) = (control.clone(), Arc::clone(&permit), name.to_owned(), text.to_owned());
    let work = async move {
        let mut own = of.db().policies_of(by.tenant()).await?;
        own.retain(|(other, _)| *other != name);
        own.push((name.clone(), text.clone()));
        // That tenants stay apart needs no new proof: a forbid lets nobody do more than the proven set in force does.
        let current = of.policies().current();
        blocking(of.threads(), move || current.with_tenant(&own).map(drop).map_err(invalid)).await?;
        let written = of.db().put_policy(&by, &name, &text).await;
        // Whatever the database answered, it may have written.
        of.policies().forget(by.tenant());
        written?;
        Ok(TenantPolicy { name, policy: text })
    };
    change(control, caller, permit, work).await
}

/// Takes one of the tenant's own policies away.
///
/// # Errors
/// When it is denied, or there is none of that name.
pub async fn delete(control: &Control, caller: &Caller, name: &str) -> Result<(), ApiError> {
    let asked = control.judge(caller).await?.admin(AdminAction::PolicyWrite);
    let permit = Arc::new(control.permit(caller, asked).await?);
    let (of, by, name) = (control.clone(), Arc::clone(&permit), name.to_owned());
    let work = async move {
        let deleted = of.db().delete_policy(&by, &name).await;
        of.policies().forget(by.tenant());
        if deleted? { Ok(()) } else { Err(ApiError::not_found("there is no such policy", "See GET /v1/policies.")) }
    };
    change(control, caller, permit, work).await
}

/// Changes a tenant's policies, one change at a time, to its end whoever waits for it: what is in the database is in
/// force and on the audit.
async fn change<T: Send + 'static>(
    control: &Control,
    caller: &Caller,
    permit: Arc<AdminPermit>,
    work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    let (of, caller) = (control.clone(), caller.clone());
    let task = control.own(async move {
        let turn = of
            .policies()
            .turn
            .wait(permit.tenant())
            .await
            .ok_or_else(|| ApiError::internal("no turns are given any more"))?;
        let result = work.await;
        drop(turn);
        of.audited(&caller, [permit.grant()], result).await
    });
    task.await.map_err(ApiError::internal)?
}

/// Why a request of the caller's own, or for admins of another user's, is allowed or denied. Of what is another tenant's
/// nothing is told but the base rule's name; of another user's own folder no more than its path tells.
///
/// # Errors
/// When it is denied, the user was never seen, or the request is none.
pub async fn explain(control: &Control, caller: &Caller, ask: ExplainRequest) -> Result<ExplainAnswer, ApiError> {
    let judge = control.judge(caller).await?;
    let subject = ask.user.clone().unwrap_or_else(|| caller.principal.user.clone());
    let permit = control.permit(caller, judge.explain(&subject)).await?;
    let result = async {
        let (judge, seen_ms) = if subject == caller.principal.user {
            (judge, None)
        } else if let Err(ended) = control.standing().check_user(permit.tenant(), &subject) {
            return Ok(ExplainAnswer { reason: ended.to_string(), ..ExplainAnswer::default() });
        } else {
            let (subject, seen_ms) = as_seen(control, caller, &permit).await?;
            (control.judge(&subject).await?, Some(seen_ms))
        };
        let question = question(control, caller, ask).await?;
        let judged = question.judged();
        // It may put thousands of questions, which nobody else waits for.
        let turn = control.explanations().take(permit.tenant(), PATIENCE).await.ok_or_else(too_many)?;
        let found = blocking(control.threads(), move || {
            let _turn = turn;
            Ok(question.explain(&judge))
        });
        let found = found.await?;
        Ok(ExplainAnswer { seen_ms, judged, ..answer(found) })
    };
    control.audited(caller, [permit.grant()], result.await).await
}

/// What is to be explained.
enum Question {
    Path(Action, PathFacts, Option<BranchName>),
    Run(Action, RunFacts),
    Plan(Action, RunPlan),
    Tenant(Action),
}

impl Question {
    fn explain(&self, judge: &Judge) -> Explanation {
        match self {
            Self::Path(action, facts, branch) => judge.explain_path(*action, facts, branch.as_ref()),
            Self::Run(action, facts) => judge.explain_run(*action, facts),
            Self::Plan(action, plan) => judge.explain_plan(*action, plan),
            Self::Tenant(action) => judge.explain_tenant(*action),
        }
    }

    /// What was taken for granted.
    fn judged(&self) -> BTreeMap<String, String> {
        let Self::Plan(_, RunPlan { wall, template, limits, .. }) = self else { return BTreeMap::new() };
        let attributes = [
            ("wall", wall.to_string()),
            ("template", template.to_string()),
            ("cpu_millis", limits.cpu_millis.to_string()),
            ("memory_bytes", limits.memory_bytes.to_string()),
            ("disk_bytes", limits.disk_bytes.to_string()),
            ("timeout_ms", limits.timeout_ms.to_string()),
        ];
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// The question that is asked, with what our own store knows of what it is about.
async fn question(control: &Control, caller: &Caller, ask: ExplainRequest) -> Result<Question, ApiError> {
    let hint = "See `docs/policy.md` for the actions and what each is about.";
    let action: Action =
        ask.action.parse().map_err(|error| ApiError::invalid("invalid_action", format!("{error}"), hint))?;
    let invalid = |message: String, hint: &'static str| Err(ApiError::invalid("invalid_request", message, hint));
    match (action.about(), ask.path, ask.run) {
        (Some(Kind::Path), Some(path), None) => {
            let branch = ask.branch.unwrap_or_else(BranchName::main);
            // INVARIANT: as the caller may know them, whoever the question is about.
            let facts: PathFacts = control.path_facts(caller, &path, Some(&branch));
            Ok(Question::Path(action, facts, takes_branch(action).then_some(branch)))
        }
        (Some(Kind::Path), None, _) => {
            invalid(format!("`{action}` is about a path, and none is named"), "Name one in `path` (`--path PATH`).")
        }
        (Some(Kind::Run), None, Some(run)) => {
            let facts = control.db().run_facts(&caller.principal, &run).await?;
            Ok(Question::Run(action, facts.ok_or_else(ApiError::run_not_found)?))
        }
        (Some(Kind::Run), _, None) => {
            invalid(format!("`{action}` is about a run, and none is named"), "Name one in `run` (`--run RUN`).")
        }
        (Some(Kind::Sandbox), None, None) => {
            let runs = &control.config().runs;
            let (wall, template) = (WallKind::Container, runs.default_template.clone());
            let limits = runs.default_limits;
            Ok(Question::Plan(action, RunPlan { wall, template, root: false, limits }))
        }
        (Some(_), None, None) => Ok(Question::Tenant(action)),
        (Some(_), _, _) => invalid(
            format!("`{action}` is not about that"),
            "Name a `path` for what is about a path, a `run` for what is about a run, and nothing for the rest.",
        ),
        (None, _, _) => invalid(format!("`{action}` is not for a tenant's users"), hint),
    }
}

fn too_many() -> ApiError {
    let message = "too many explanations are looked for at once";
    ApiError::new(ErrorKind::Exhausted, "too_many_explanations", message, "Try again after the time in `Retry-After`.")
}

/// The permit's user as it was last seen, and when. What it asks with comes from our own store, never from the request.
async fn as_seen(control: &Control, caller: &Caller, permit: &ExplainPermit) -> Result<(Caller, u64), ApiError> {
    super::identity::write_notes(control).await?;
    let known = control.db().explained(permit).await?.ok_or_else(|| {
        ApiError::not_found("no token of that user was ever seen", "List those who were with GET /v1/users.")
    })?;
    let mut principal = Principal::new(permit.tenant().clone(), permit.subject().clone());
    (principal.roles, principal.entitlements) = (known.rights.roles, known.rights.entitlements);
    (principal.region, principal.project) = (known.rights.region, known.rights.project);
    Ok((Caller::new(principal, caller.request.clone()), known.last_ms))
}

/// Which policies are in force.
///
/// # Errors
/// When it is denied.
pub async fn state(control: &Control, caller: &OperatorCaller) -> Result<PolicyState, ApiError> {
    let permit = control.operator_may(caller, SystemAction::PolicyStatus).await?;
    control.operator_audited(caller, &permit, Ok(control.policy_state())).await
}

/// What an operator's folder as it would be had said in the last day. Tenants' own policies are left out: they would
/// have said the same.
///
/// # Errors
/// When it is denied, or the policies do not hold.
pub async fn dry_run(control: &Control, caller: &OperatorCaller, ask: DryRunRequest) -> Result<DryRunAnswer, ApiError> {
    let permit = control.operator_may(caller, SystemAction::PolicyDryRun).await?;
    let result = async {
        let bytes: usize = ask.files.values().map(String::len).sum();
        if ask.files.len() > MAX_FOLDER_FILES || bytes > MAX_FOLDER_BYTES {
            let message = format!("the folder has {} files of {bytes} bytes together", ask.files.len());
            let hint = format!("Send at most {MAX_FOLDER_FILES} files of {MAX_FOLDER_BYTES} bytes together.");
            return Err(ApiError::new(ErrorKind::TooLarge, "too_many_policies", message, hint));
        }
        let files: Vec<_> = ask.files.into_iter().collect();
        let new = blocking(control.threads(), move || Policies::new(&files).map_err(invalid)).await?;
        control.write_decisions().await;
        let since = control.now_ms().saturating_sub(DECISION_MS);
        let seen = control.db().decisions(&permit, since).await?;
        let old = control.policies().current();
        blocking(control.threads(), move || {
            let (mut newly_allowed, mut newly_denied) = (BTreeMap::new(), BTreeMap::new());
            let mut found = DryRunAnswer::default();
            for decision in seen {
                found.asked += 1;
                let (before, after) = (old.ask(&decision.request), new.ask(&decision.request));
                if before.allowed == after.allowed {
                    continue;
                }
                let rows = if after.allowed { &mut newly_allowed } else { &mut newly_denied };
                let (full, new) = (rows.len() >= MAX_ROWS, dry_run_row(&decision, after.policies));
                match rows.entry((new.principal.clone(), new.action.clone(), new.resource.clone(), new.by.clone())) {
                    Entry::Occupied(mut row) => {
                        let row: &mut DryRunRow = row.get_mut();
                        row.count += new.count;
                        row.last_ms = row.last_ms.max(new.last_ms);
                    }
                    Entry::Vacant(_) if full => found.more += 1,
                    Entry::Vacant(row) => drop(row.insert(new)),
                }
            }
            found.newly_allowed = newly_allowed.into_values().collect();
            found.newly_denied = newly_denied.into_values().collect();
            Ok(found)
        })
        .await
    };
    control.operator_audited(caller, &permit, result.await).await
}

/// What an operator is told of a request: no more than its audit tells. Who a tenant's users are and what they ask about is
/// the tenant's own.
fn dry_run_row(decision: &DecisionSeen, by: Vec<String>) -> DryRunRow {
    let (request, tenant) = (&decision.request, &decision.tenant);
    let kind = request.resource.link.kind;
    let place = match (kind == Kind::Path, request.resource.attributes.contains_key("owner")) {
        (true, true) => format!("/tenants/{tenant}/users/…"),
        (true, false) => format!("/tenants/{tenant}/…"),
        (false, _) => format!("{tenant}/…"),
    };
    let resource = format!("{kind}::{place:?}");
    DryRunRow {
        principal: format!("{}::{:?}", request.principal.link.kind, format!("{tenant}/…")),
        action: request.action.to_string(),
        resource,
        count: decision.count,
        last_ms: decision.last_ms,
        by,
    }
}

fn takes_branch(action: Action) -> bool {
    !matches!(
        action,
        Action::TreeLabel
            | Action::TreePurge
            | Action::TreeClone
            | Action::TreePush
            | Action::TreeShare
            | Action::TreeUnshare
    )
}

fn answer(found: Explanation) -> ExplainAnswer {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let changes = found.changes.into_iter();
    let changes =
        changes.map(|change| ExplainChange { attribute: change.attribute, now: change.now, would_be: change.would_be });
    ExplainAnswer {
        allowed: found.allowed,
        seen_ms: None,
        judged: BTreeMap::new(),
        policies: found.policies,
        reason: found.reason,
        changes: changes.collect(),
        searched: ExplainSearched {
            candidates: count(found.searched.candidates),
            at_once: count(found.searched.at_once),
            asked: count(found.searched.asked),
            complete: found.searched.complete,
        },
    }
}

fn invalid(error: PolicyError) -> ApiError {
    let hint = "See `docs/policy.md`; `bailey policy test` and `bailey policy prove` try policies without a server.";
    match error {
        PolicyError::TooMany | PolicyError::TooHeavy => {
            ApiError::new(ErrorKind::TooLarge, "too_many_policies", error.to_string(), hint)
        }
        error => ApiError::invalid("invalid_policy", error.to_string(), hint),
    }
}
