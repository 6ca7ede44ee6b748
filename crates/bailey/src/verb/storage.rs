//! `bailey purge`, `bailey quota` and `bailey gc`.

use std::process::ExitCode;

use bailey_protocol::id::TenantId;
use bailey_protocol::purge::{PurgeReceipt, PurgeRequest, PurgeState};
use bailey_protocol::quota::{GcSummary, TenantQuota, TenantStorage};
use reqwest::Method;

use super::identity::never_seen;
use super::{VerbError, connect, say, usage};
use crate::cli::Common;
use crate::cli::storage::{GcArgs, PurgeArgs, QuotaArgs, QuotaSetArgs, QuotaVerb};

pub(super) async fn purge(args: PurgeArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let receipt: PurgeReceipt = match (args.path, args.receipt) {
        (Some(path), _) => client.post("/v1/purges", &PurgeRequest { path }).await?,
        (None, Some(id)) => client.get(&format!("/v1/purges/{id}"), &[]).await?,
        (None, None) => return Err(usage("name a path, or the receipt to show")),
    };
    say(&common, &receipt, || {
        let state = match receipt.state {
            PurgeState::Done => "its bytes are off the disk",
            PurgeState::Removing => "its bytes go as soon as those at work with them are done",
        };
        let mut lines = vec![format!("{} {} versions changed; {state}", receipt.id, receipt.versions)];
        lines.extend(receipt.salt.iter().map(|salt| {
            format!("salt {salt}: told this once, it shows what the receipt is about; nobody else can tell")
        }));
        lines.extend(receipt.became.iter().map(|one| format!("{} -> {}", one.old, one.new)));
        lines.join("\n")
    })
}

pub(super) async fn quota(args: QuotaArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let storage: TenantStorage = match args.verb {
        QuotaVerb::Show { tenant: None } => client.get("/v1/tenant", &[]).await?,
        QuotaVerb::Show { tenant: Some(tenant) } => client.get(&of(&tenant), &[]).await?,
        QuotaVerb::Set(args) if args.usual => client.json(Method::DELETE, &of(&args.tenant), None::<&()>).await?,
        QuotaVerb::Set(args) => {
            let now: TenantStorage = client.get(&of(&args.tenant), &[]).await?;
            client.json(Method::PUT, &of(&args.tenant), Some(&changed(now.quota, &args))).await?
        }
    };
    say(&common, &storage, || described(&storage))
}

pub(super) async fn collect(args: GcArgs, common: Common) -> Result<ExitCode, VerbError> {
    let client = connect(&common)?;
    let path = format!("/v1/operator/tenants/{}/gc", args.tenant);
    let done: GcSummary = client.json(Method::POST, &path, None::<&()>).await?;
    say(&common, &done, || {
        let GcSummary { stores, live, condemned, removed, freed_bytes, expired, held } = &done;
        let mut text = format!(
            "{stores} stores, {live} objects in use, {expired} versions let go\n\
             {removed} objects removed, {freed_bytes} bytes free again; {condemned} go next time"
        );
        if *held > 0 {
            text.push_str(&format!("\n{held} stores have somebody at work with what was to go: try again"));
        }
        text
    })
}

fn of(tenant: &TenantId) -> String {
    format!("/v1/operator/tenants/{tenant}/quota")
}

fn changed(now: TenantQuota, args: &QuotaSetArgs) -> TenantQuota {
    TenantQuota {
        bytes: args.bytes.unwrap_or(now.bytes),
        files: args.files.unwrap_or(now.files),
        file_bytes: args.largest_file.unwrap_or(now.file_bytes),
        versions: args.versions.unwrap_or(now.versions),
        version_days: args.version_days.unwrap_or(now.version_days),
        side_branch_days: args.side_branch_days.unwrap_or(now.side_branch_days),
    }
}

fn described(TenantStorage { tenant, quota, usage, known }: &TenantStorage) -> String {
    let days = |days: u64| if days == 0 { "for ever".to_owned() } else { format!("for {days} days") };
    [
        format!("{tenant}{}", never_seen(*known)),
        format!("  bytes         {} of {}", usage.bytes, quota.bytes),
        format!("  files         {} of {}", usage.files, quota.files),
        format!("  largest file  {} bytes", quota.file_bytes),
        format!("  versions      {} per branch, {}", quota.versions, days(quota.version_days)),
        format!("  side branches {}", days(quota.side_branch_days)),
    ]
    .join("\n")
}
