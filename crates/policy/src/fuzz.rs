//! Policies and cases that others wrote: an operator's file, a tenant's policy, a question with its answer.

use std::sync::OnceLock;

use crate::case::CaseFile;
use crate::policies::{MAX_TENANT_POLICY_BYTES, Policies};
use crate::request::{Request, Value};

/// Most cases that are asked of one input.
const MAX_CASES: usize = 8;

/// What the base rules allow, and what they deny whatever others say.
const ASKED: &str = r#"{"case": [
  {"name": "own", "principal": {"tenant": "acme", "user": "ana"}, "action": "tree_read",
   "resource": {"path": {"at": "/tenants/acme/x"}}, "context": {"branch": "main"}, "expect": "allow"},
  {"name": "run", "principal": {"tenant": "acme", "user": "ana"}, "action": "run_create",
   "resource": {"sandbox": {}}, "expect": "allow"},
  {"name": "served", "principal": {"service": "app"}, "action": "token_exchange",
   "resource": {"tenant": "acme"}, "expect": "allow"}]}"#;
const DENIED: &str = r#"{"case": [
  {"name": "foreign tenant", "principal": {"tenant": "acme", "user": "ana"}, "action": "tree_read",
   "resource": {"path": {"at": "/tenants/globex/x"}}, "context": {"branch": "main"}, "expect": "deny"},
  {"name": "foreign folder", "principal": {"tenant": "acme", "user": "ana"}, "action": "tree_write",
   "resource": {"path": {"at": "/tenants/acme/users/bob/x"}}, "context": {"branch": "main"}, "expect": "deny"},
  {"name": "not served", "principal": {"service": "app", "tenants": ["acme"]}, "action": "token_exchange",
   "resource": {"tenant": "globex"}, "expect": "deny"}]}"#;

struct Known {
    base: Policies,
    asked: Vec<Request>,
    denied: Vec<Request>,
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let base = Policies::new(&[]).expect("the base rules hold");
        let requests = |text| {
            let file: CaseFile = serde_json::from_str(text).expect("cases of our own");
            let one = |case: &crate::case::Case| {
                assert_eq!(case.check(&base), Ok(()), "{}", case.name);
                case.request().expect("a question")
            };
            file.cases.iter().map(one).collect()
        };
        let (asked, denied) = (requests(ASKED), requests(DENIED));
        Known { base, asked, denied }
    })
}

/// A tenant's policy only takes away, and from its own users alone; no operator's file opens what the base rules forbid.
pub fn policies(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Known { base, asked, denied } = known();
    let file = [("fuzz".to_owned(), text.to_owned())];
    if let Ok(set) = base.with_tenant(&file) {
        assert!(text.len() <= MAX_TENANT_POLICY_BYTES && set.count() == base.count() + 1);
        for request in asked.iter().chain(denied) {
            let (with, without) = (set.ask(request), base.ask(request));
            assert!(!with.allowed || without.allowed, "a tenant's policy gives");
            let own = |by: &String| by == "tenant/fuzz";
            assert!(with.allowed == without.allowed || with.policies.iter().all(own), "{with:?}");
        }
    }
    if let Ok(set) = Policies::new(&file) {
        for request in denied {
            assert!(!set.ask(request).allowed, "an operator's file opens what is another's");
        }
    }
    cases(base, data);
}

fn cases(base: &Policies, data: &[u8]) {
    let Ok(file) = serde_json::from_slice::<CaseFile>(data) else { return };
    for case in file.cases.iter().take(MAX_CASES) {
        let Ok(request) = case.request() else { continue };
        let (one, other) = (base.ask(&request), base.ask(&request));
        assert_eq!(one, other, "one question, two answers");
        assert!(!(one.broken && one.allowed), "{one:?}");
        let text = serde_json::to_vec(&request).expect("a question can be written");
        assert_eq!(serde_json::from_slice::<Request>(&text).ok().as_ref(), Some(&request));
        foreign(&request, one.allowed);
    }
}

/// Users get nothing that is another tenant's.
fn foreign(request: &Request, allowed: bool) {
    let (Some(own), Some(Value::Link(of))) = (&request.tenant, request.resource.attributes.get("tenant")) else {
        return;
    };
    assert!(!allowed || own.link == *of, "{request:?}");
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_others_write_opens_nothing() {
        let base = &known().base;
        let taken = |text: &str| base.with_tenant(&[("fuzz".to_owned(), text.to_owned())]).is_ok();
        let texts =
            replay::corpus("policies").into_iter().map(|(name, bytes)| (name, String::from_utf8(bytes).unwrap()));
        let taken: Vec<_> = texts.filter(|(_, text)| taken(text)).map(|(name, _)| name).collect();
        assert_eq!(taken, ["tenant-forbid", "unicode", "within-bounds"]);
        replay::target("policies", 70, policies);
    }
}
