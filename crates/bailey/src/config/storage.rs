//! What a tenant may keep for which an operator has set nothing else.

use std::path::Path;

use bailey_protocol::quota::TenantQuota;
use serde::Deserialize;

use super::ConfigError;

/// The server takes no larger file, whatever a quota says.
const MAX_FILE_BYTES: u64 = 16 << 30;
/// A century.
const MAX_DAYS: u64 = 36_500;

/// The file's table `[quota]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QuotaFile {
    bytes: Option<u64>,
    files: Option<u64>,
    file_bytes: Option<u64>,
}

/// The file's table `[retention]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RetentionFile {
    versions: Option<u64>,
    version_days: Option<u64>,
    side_branch_days: Option<u64>,
}

/// Checks what the file at `path` says; what it does not say is as ever.
pub(super) fn read(path: &Path, quota: QuotaFile, retention: RetentionFile) -> Result<TenantQuota, ConfigError> {
    let range = |key, given: Option<u64>, usual, least, most, rule| match given.unwrap_or(usual) {
        fine if (least..=most).contains(&fine) => Ok(fine),
        wrong => Err(ConfigError::Value { path: path.to_owned(), key, given: wrong.to_string(), rule }),
    };
    let usual = TenantQuota::default();
    let (some, days) = ("use at least 1", "use 0 to 36500 days; 0 is no limit");
    Ok(TenantQuota {
        bytes: range("quota.bytes", quota.bytes, usual.bytes, 1, u64::MAX, some)?,
        files: range("quota.files", quota.files, usual.files, 1, u64::MAX, some)?,
        file_bytes: range(
            "quota.file_bytes",
            quota.file_bytes,
            usual.file_bytes,
            1,
            MAX_FILE_BYTES,
            "use 1 to 17179869184",
        )?,
        versions: range("retention.versions", retention.versions, usual.versions, 1, u64::MAX, some)?,
        version_days: range("retention.version_days", retention.version_days, usual.version_days, 0, MAX_DAYS, days)?,
        side_branch_days: range(
            "retention.side_branch_days",
            retention.side_branch_days,
            usual.side_branch_days,
            1,
            MAX_DAYS,
            "use 1 to 36500 days",
        )?,
    })
}
