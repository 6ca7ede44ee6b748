//! `fork`, `branches`, `promote`, `protect`, `unprotect`, `label`, `share`, `baseline`.

use std::process::ExitCode;

use bailey_protocol::api::{
    BaselineInfo, BaselineList, BranchInfo, BranchList, ForkRequest, LabelRequest, PathLabels, Promoted,
    PromotionOutcome, PromotionRequest, Protection, ShareMode, TreeTokenList, TreeTokenMade, TreeTokenRequest,
};
use bailey_protocol::label::Label;
use bailey_protocol::path::TreePath;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::json;

use super::{VerbError, connect, say, say_list, transfer, usage};
use crate::cli::Common;
use crate::cli::branch::{
    BaselineArgs, BaselineVerb, BranchesArgs, ForkArgs, LabelArgs, PromoteArgs, ProtectArgs, ShareArgs, ShareNew,
    ShareVerb, StoreArgs, UnprotectArgs,
};
use crate::client::{Client, Upload, tree_path};
use crate::terminal::{Paint, note, printable, rows, time};

pub(super) async fn fork(args: ForkArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = store(args.store, &client)?;
    let made: BranchInfo =
        client.post("/v1/forks", &ForkRequest { path, branch: args.branch, from: args.from }).await?;
    say(&common, &made, || format!("{} at {}", made.branch, made.version))
}

pub(super) async fn branches(args: BranchesArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let front = tree_path("branches", &store(args.store, &client)?);
    if let Some(branch) = args.delete {
        client.remove(&front, &[("branch", branch.to_string())]).await?;
        return say(&common, &json!({ "branch": branch, "deleted": true }), || format!("{branch} is taken away"));
    }
    let (mut branches, mut query) = (Vec::new(), Vec::new());
    loop {
        let page: BranchList = client.get(&front, &query).await?;
        branches.extend(page.branches);
        let Some(next) = page.next else { break };
        query = vec![("after", next.to_string())];
    }
    let paint = Paint::stdout();
    let list = BranchList { branches, next: None };
    say_list(&common, &list, "no branch has a version yet", || {
        rows(&list.branches, |BranchInfo { branch, version, protected }| {
            let note = if *protected { "  protected" } else { "" };
            format!("{} {branch}{}", paint.cyan(version.as_str()), paint.dim(note))
        })
    })
}

pub(super) async fn promote(args: PromoteArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = store(args.store, &client)?;
    let request = PromotionRequest { path, from: args.from, into: args.into };
    let done: Promoted = client.post("/v1/promotions", &request).await?;
    let how = match done.outcome {
        PromotionOutcome::Forwarded => "forwarded to",
        PromotionOutcome::Merged => "merged as",
        PromotionOutcome::Unchanged => "had it all already, at",
    };
    say(&common, &done, || format!("{} {how} {}", done.branch, done.version))
}

pub(super) async fn protect(args: ProtectArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let front = tree_path("protections", &store(args.store, &client)?);
    let query = [("branch", args.branch.to_string()), ("review", args.review.to_string())];
    let nothing = Upload { content: Vec::new().into(), length: None };
    let done: Protection = client.write(Method::PUT, &front, &query, None, nothing).await?;
    let review = if done.review { ", with review" } else { "" };
    say(&common, &done, || format!("{} is changed by promotions alone{review}", done.branch))
}

pub(super) async fn unprotect(args: UnprotectArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let front = tree_path("protections", &store(args.store, &client)?);
    client.remove(&front, &[("branch", args.branch.to_string())]).await?;
    let value = json!({ "branch": args.branch, "protected": false });
    say(&common, &value, || format!("{} is changed by anybody who may write again", args.branch))
}

pub(super) async fn label(args: LabelArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let front = tree_path("labels", &args.path);
    if args.clear {
        client.remove(&front, &[]).await?;
        let value = json!({ "path": args.path, "labels": [] });
        return say(&common, &value, || format!("{} has no labels of its own", printable(args.path.as_str())));
    }
    let shown: PathLabels = if args.labels.is_empty() {
        client.get(&front, &[]).await?
    } else {
        let body = LabelRequest { labels: args.labels.into_iter().collect() };
        client.send_json(Method::PUT, &front, &[], None, &body).await?
    };
    nothing_there(shown.known);
    let paint = Paint::stdout();
    say_list(&common, &shown, "no labels", || {
        let own = shown.labels.iter().map(Label::to_string);
        let inherited = shown.inherited.difference(&shown.labels);
        let inherited = inherited.map(|label| format!("{label}{}", paint.dim("  from a folder above")));
        let below = shown.below.iter().map(|below| {
            let labels: Vec<&str> = below.labels.iter().map(Label::as_str).collect();
            paint.dim(&format!("{} {}", printable(below.path.as_str()), labels.join(" ")))
        });
        rows(own.chain(inherited).chain(below), |line| line)
    })
}

pub(super) async fn share(args: ShareArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    match args.verb {
        Some(ShareVerb::Revoke { id }) => {
            client.remove(&format!("/v1/tree-tokens/{id}"), &[]).await?;
            say(&common, &json!({ "id": id, "revoked": true }), || format!("{id} is revoked"))
        }
        Some(ShareVerb::List { user }) => {
            let whose: Vec<_> = user.iter().map(|user| ("user", user.to_string())).collect();
            let list: TreeTokenList = client.get("/v1/tree-tokens", &whose).await?;
            say_list(&common, &list, "no tree tokens that hold", || {
                rows(&list.tokens, |token| {
                    let (path, until) = (printable(token.path.as_str()), time(token.expires_ms));
                    format!("{} {} {path} until {until}", token.id, mode_name(token.mode))
                })
            })
        }
        None => make(&client, args.new, &common).await,
    }
}

async fn make(client: &Client, new: ShareNew, common: &Common) -> Result<ExitCode, VerbError> {
    let path = new.path.ok_or_else(|| usage("name a path to share, or use `list` or `revoke`"))?;
    let mode = if new.write { ShareMode::Write } else { ShareMode::Read };
    let request = TreeTokenRequest { path, mode, minutes: new.minutes };
    let made: TreeTokenMade = client.post("/v1/tree-tokens", &request).await?;
    if !common.json {
        nothing_there(made.known);
        note!("bailey: `{}` until {}; it is shown this once", made.about.id, time(made.about.expires_ms));
    }
    say(common, &made, || made.token.clone())
}

/// Says that a path may be misspelt.
fn nothing_there(known: Option<bool>) {
    if known == Some(false) {
        note!("bailey: nothing is at that path on `main` now");
    }
}

pub(super) async fn baseline(args: BaselineArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    match args.verb {
        BaselineVerb::List { operator } => {
            let path = if operator { "/v1/operator/baselines" } else { "/v1/baselines" };
            let list: BaselineList = client.get(path, &[]).await?;
            say_list(&common, &list, "no baselines are published", || {
                rows(&list.baselines, |info| {
                    format!("baseline:{}@{} {}", info.name, info.number, time(info.published_ms))
                })
            })
        }
        BaselineVerb::Publish { name, folder } => {
            let front = format!("/v1/operator/baselines/{name}");
            let sent = transfer::send_folder(folder, async |body| {
                Ok(client.write::<BaselineInfo>(Method::POST, &front, &[], None, body).await?)
            });
            let info = sent.await?;
            say(&common, &info, || format!("baseline:{}@{}", info.name, info.number))
        }
    }
}

fn mode_name(mode: ShareMode) -> &'static str {
    match mode {
        ShareMode::Read => "read",
        ShareMode::Write => "write",
    }
}

/// The store that was named, or that of the token's tenant.
fn store(args: StoreArgs, client: &Client) -> Result<TreePath, VerbError> {
    let known = args.store.or_else(|| tenant_root(client.token()));
    known.ok_or_else(|| usage("the token does not say of which tenant it is: name the store, `--in /tenants/TENANT`"))
}

/// What the token says of its tenant. Nobody relies on it: the server verifies the token itself.
fn tenant_root(token: &str) -> Option<TreePath> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    format!("/tenants/{}", claims.get("tenant")?.as_str()?).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_of_a_token_is_the_default_store() {
        let token = |claims: &str| format!("x.{}.x", URL_SAFE_NO_PAD.encode(claims));
        let found = |claims: &str| tenant_root(&token(claims)).map(|path| path.to_string());
        assert_eq!(found(r#"{"tenant":"acme"}"#).as_deref(), Some("/tenants/acme"));
        for claims in ["{}", r#"{"tenant":1}"#, r#"{"tenant":"../x"}"#, "x"] {
            assert_eq!(found(claims), None, "{claims}");
        }
        assert_eq!(tenant_root("e2b_0123"), None);
    }
}
