//! Branches, protections, labels, tree tokens and baselines.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{BaselineName, IdError, TokenId, VersionId};
use crate::label::Label;
use crate::path::{BranchName, Revision, TreePath};

/// Body of `POST /v1/forks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForkRequest {
    /// The store: `/tenants/{tenant}` or `/tenants/{tenant}/users/{user}`.
    pub path: TreePath,
    /// The new branch.
    pub branch: BranchName,
    /// What it starts at; `main` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ForkSource>,
}

/// What a new branch starts at: a branch, a version, or `baseline:NAME@NUMBER` (the latest without `@NUMBER`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ForkSource {
    /// A branch or version of the same store.
    Revision(Revision),
    /// A folder that an operator published.
    Baseline {
        /// Which.
        name: BaselineName,
        /// Which publication of it; the latest when absent.
        number: Option<u32>,
    },
}

impl std::str::FromStr for ForkSource {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let Some(baseline) = text.strip_prefix("baseline:") else {
            return text.parse().map(Self::Revision);
        };
        let (name, number) = match baseline.split_once('@') {
            None => (baseline, None),
            Some((name, number)) => {
                let rule = "use baseline:NAME or baseline:NAME@NUMBER, with a number from 1 on";
                // One spelling for each number.
                let number = number.parse::<u32>().ok().filter(|parsed| *parsed > 0 && parsed.to_string() == number);
                (name, Some(number.ok_or_else(|| IdError::new("baseline", rule, text))?))
            }
        };
        Ok(Self::Baseline { name: name.parse()?, number })
    }
}

impl TryFrom<String> for ForkSource {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        text.parse()
    }
}

impl From<ForkSource> for String {
    fn from(source: ForkSource) -> Self {
        source.to_string()
    }
}

impl fmt::Display for ForkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revision(revision) => revision.fmt(f),
            Self::Baseline { name, number: None } => write!(f, "baseline:{name}"),
            Self::Baseline { name, number: Some(number) } => write!(f, "baseline:{name}@{number}"),
        }
    }
}

crate::id::text_schema!(
    ForkSource,
    "source of a branch",
    "a branch, a version, or `baseline:NAME@NUMBER` (the latest without `@NUMBER`)"
);

/// One branch of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchInfo {
    /// Its name.
    pub branch: BranchName,
    /// Where it is.
    pub version: VersionId,
    /// Whether only promotions change it.
    pub protected: bool,
}

/// Answer to `GET /v1/branches/{path}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BranchList {
    /// In name order.
    pub branches: Vec<BranchInfo>,
    /// Send as `after` to go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<BranchName>,
}

/// Body of `POST /v1/promotions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromotionRequest {
    /// The store: `/tenants/{tenant}` or `/tenants/{tenant}/users/{user}`.
    pub path: TreePath,
    /// The branch whose changes are taken.
    pub from: BranchName,
    /// The branch that they go to.
    pub into: BranchName,
}

/// Answer to `POST /v1/promotions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Promoted {
    /// The branch that they went to.
    pub branch: BranchName,
    /// Where it is now.
    pub version: VersionId,
    /// How it got there.
    pub outcome: PromotionOutcome,
}

/// How a branch took another's changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromotionOutcome {
    /// It had not moved: it is where the other is.
    Forwarded,
    /// It had moved, without touching the same paths: a new version has both.
    Merged,
    /// It had them already.
    Unchanged,
}

/// A protected branch: nothing changes it but promotions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Protection {
    /// The branch.
    pub branch: BranchName,
    /// Whether who promotes must be somebody else than those who made what is promoted.
    pub review: bool,
    /// Who protected it.
    pub by: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

/// Answer to `GET /v1/protections/{path}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectionList {
    /// In name order.
    pub protections: Vec<Protection>,
}

/// Body of `PUT /v1/labels/{path}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabelRequest {
    /// All labels of the path itself; others that it had are gone.
    pub labels: BTreeSet<Label>,
}

/// The labels of a path, on every branch and version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathLabels {
    /// The path.
    pub path: TreePath,
    /// Its own.
    pub labels: BTreeSet<Label>,
    /// Those of the folders above, which hold for it as well.
    pub inherited: BTreeSet<Label>,
    /// Whether anything is at the path on `main` now: one that is misspelt looks like one that is not there yet. Absent where
    /// you may not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<bool>,
    /// Paths below that have labels of their own; at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<LabelledPath>,
}

/// A path with labels of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabelledPath {
    /// The path.
    pub path: TreePath,
    /// Its own labels.
    pub labels: BTreeSet<Label>,
}

/// What a tree token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareMode {
    /// Reading, listing, histories and comparisons.
    Read,
    /// That, and writing and deleting.
    Write,
}

/// Body of `POST /v1/tree-tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TreeTokenRequest {
    /// The path, with all that is below it in the same store.
    pub path: TreePath,
    /// What for.
    pub mode: ShareMode,
    /// For how long: 1 to 1440.
    pub minutes: u32,
}

/// A tree token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeToken {
    /// Its id, for its end.
    pub id: TokenId,
    /// Whose rights it has, narrowed.
    pub user: String,
    /// The path.
    pub path: TreePath,
    /// What for.
    pub mode: ShareMode,
    /// Since when, in milliseconds since 1970.
    pub created_ms: u64,
    /// Until when, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// Answer to `POST /v1/tree-tokens`: the only time that the token is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeTokenMade {
    /// Send as `Authorization: Bearer`, or as the password of `Authorization: Basic`.
    pub token: String,
    /// All else about it.
    #[serde(flatten)]
    pub about: TreeToken,
    /// Whether anything is at the path on `main` now: one that is misspelt looks like one that is not there yet. Absent where
    /// you may not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<bool>,
}

/// Answer to `GET /v1/tree-tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TreeTokenList {
    /// Newest first; those that ended are not listed.
    pub tokens: Vec<TreeToken>,
}

/// A folder that an operator published, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaselineInfo {
    /// Its name.
    pub name: BaselineName,
    /// 1 for the first publication of that name, then 2, 3, …
    pub number: u32,
    /// When, in milliseconds since 1970.
    pub published_ms: u64,
}

/// Answer to `GET /v1/baselines`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BaselineList {
    /// By name, newest first.
    pub baselines: Vec<BaselineInfo>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_starts_at_a_revision_or_a_baseline() {
        let version = "0123456789abcdef0123456789abcdef01234567";
        for text in ["main", version, "baseline:py", "baseline:py@3"] {
            assert_eq!(text.parse::<ForkSource>().unwrap().to_string(), text);
        }
        for bad in
            ["", "baseline:", "baseline:py@", "baseline:py@0", "baseline:py@03", "baseline:py@+3", "baseline:../x"]
        {
            assert!(bad.parse::<ForkSource>().is_err(), "{bad}");
        }
        // A tenant's path is no baseline, and no branch is named like one.
        assert!("baseline:/tenants/globex".parse::<ForkSource>().is_err());
        assert!("baseline:py".parse::<BranchName>().is_err());
    }
}
