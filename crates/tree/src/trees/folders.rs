//! Where stores lie below one folder: `{tenant}/tenant.git` and `{tenant}/users/{user}.git`.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use bailey_protocol::id::TenantId;
use bailey_protocol::path::RepoId;

use crate::blob_store::{BlobName, Part};
use crate::error::TreeError;
use crate::ledger::Amount;

const TENANT_STORE: &str = "tenant.git";
const USERS: &str = "users";
const STORE: &str = ".git";

pub(super) fn of(root: &Path, id: &RepoId) -> PathBuf {
    let tenant = root.join(id.tenant.as_str());
    match &id.user {
        None => tenant.join(TENANT_STORE),
        Some(user) => tenant.join(USERS).join(format!("{user}{STORE}")),
    }
}

/// Every store on disk.
pub(super) fn all(root: &Path) -> Result<Vec<RepoId>, TreeError> {
    let mut found = Vec::new();
    for name in names(root)? {
        if let Ok(tenant) = name.parse() {
            found.extend(of_tenant(root, &tenant)?);
        }
    }
    Ok(found)
}

fn of_tenant(root: &Path, tenant: &TenantId) -> Result<Vec<RepoId>, TreeError> {
    let folder = root.join(tenant.as_str());
    let mut found = Vec::new();
    if folder.join(TENANT_STORE).is_dir() {
        found.push(RepoId { tenant: tenant.clone(), user: None });
    }
    let users = names(&folder.join(USERS))?;
    let users = users.iter().filter_map(|name| name.strip_suffix(STORE)?.parse().ok());
    found.extend(users.map(|user| RepoId { tenant: tenant.clone(), user: Some(user) }));
    Ok(found)
}

/// What the packs of all stores of a tenant take. Those without an index do not count: they are swept.
pub(super) fn count(root: &Path, tenant: &TenantId) -> Result<Amount, TreeError> {
    let mut total = Amount::default();
    for id in of_tenant(root, tenant)? {
        total = total.plus(count_one(&of(root, &id))?);
    }
    Ok(total)
}

/// The same of the store in one folder.
pub(super) fn count_one(store: &Path) -> Result<Amount, TreeError> {
    let mut total = Amount::default();
    let packs = store.join("objects/pack");
    for name in names(&packs)?.iter().filter_map(|name| BlobName::parse(name)) {
        if packs.join(BlobName { part: Part::Index, ..name }.to_string()).exists() {
            total = total.plus(measure(&packs, &name)?);
        }
    }
    Ok(total)
}

fn measure(packs: &Path, name: &BlobName) -> Result<Amount, TreeError> {
    let path = packs.join(name.to_string());
    let measured = || -> io::Result<Amount> {
        let file = fs::File::open(&path)?;
        let bytes = file.metadata()?.len();
        if name.part != Part::Index {
            return Ok(Amount { bytes, files: 0 });
        }
        let mut count = [0; 4];
        match file.read_exact_at(&mut count, 8 + 255 * 4) {
            Ok(()) => Ok(Amount { bytes, files: u32::from_be_bytes(count).into() }),
            // A damaged index tells no number; whoever reads from it is told.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Amount { bytes, files: 0 }),
            Err(error) => Err(error),
        }
    };
    measured().map_err(TreeError::storage("counting", path.display()))
}

fn names(folder: &Path) -> Result<Vec<String>, TreeError> {
    let listed = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<io::Result<_>>()
    });
    match listed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(TreeError::storage("listing", folder.display())),
    }
}
