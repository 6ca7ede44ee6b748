//! How long a tenant's own policies may keep a decision busy. They are evaluated on the threads that serve everybody, so
//! that what they may take is bounded when they are written, by what stands in them.

use serde_json::Value;

/// For how much a `like` counts. It goes through the text once before it compares, and a path has up to 4,096 letters.
const LIKE: usize = 100;
/// For how much a letter of a pattern counts that stands behind its first `*`: it may be compared at each place of a path.
const FLOATING_LETTER: usize = 100;
/// For how much reading a time, an address or a decimal counts.
const CALL: usize = 100;

/// For how much a policy counts in any case.
const POLICY: usize = 10;

/// What a policy weighs, by its JSON: in its conditions one for each operator, operand and literal, and more for what takes
/// longer. Ten thousand take milliseconds where a path is as long and as unfortunate as can be, up to five of them on a busy
/// machine, and for each path that a request is about anew.
pub(crate) fn weight(policy: &Value) -> usize {
    POLICY + policy.get("conditions").map_or(0, of_expression)
}

fn of_expression(json: &Value) -> usize {
    match json {
        Value::Array(items) => items.iter().map(|item| 1 + of_expression(item)).sum(),
        Value::Object(fields) => fields.iter().map(|(operator, below)| of_operator(operator, below)).sum(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

fn of_operator(operator: &str, below: &Value) -> usize {
    match operator {
        "like" => {
            let letters = below.get("pattern").map_or(0, floating);
            LIKE + FLOATING_LETTER * letters + below.get("left").map_or(0, of_expression)
        }
        "datetime" | "duration" | "decimal" | "ip" => CALL + of_expression(below),
        _ => 1 + of_expression(below),
    }
}

/// Letters of a pattern behind its first `*`.
fn floating(pattern: &Value) -> usize {
    let parts = pattern.as_array().into_iter().flatten();
    let literal = |part: &Value| part.get("Literal").and_then(Value::as_str).map(|text| text.chars().count());
    parts.map(literal).skip_while(Option::is_some).flatten().sum()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use bailey_protocol::path::{BranchName, MAX_PATH_BYTES, Revision};
    use cedar_policy::PolicySet;

    use super::*;
    use crate::facts::PathFacts;
    use crate::judge::ReadAction;
    use crate::policies::{MAX_TENANT_BYTES, MAX_TENANT_POLICIES, MAX_TENANT_WEIGHT, Policies};
    use crate::principal::Principal;

    fn of(condition: &str) -> usize {
        let text = format!("forbid (principal, action, resource) when {{ {condition} }};");
        let set: PolicySet = text.parse().unwrap();
        set.policies().map(|policy| weight(&policy.to_json().unwrap())).sum()
    }

    #[test]
    fn what_may_take_long_weighs_more() {
        let like = |pattern: &str| of(&format!(r#"resource.path like "{pattern}""#));
        let plain = of(r#"resource.path == "x""#);
        assert!(like("*") > plain + LIKE / 2 && like("/tenants/acme/payroll/2030/*") < plain + LIKE + 10);
        assert_eq!(like("*/.env") - like("*/.en"), FLOATING_LETTER);
        assert!(of(r#"context.time < datetime("2030-01-01")"#) > CALL);
        assert!(of(r#"["a", "b", "c"].contains("x")"#) > of(r#"["a"].contains("x")"#));
    }

    /// As many policies as may be, each of `condition`s as heavy as all together may be.
    fn heaviest(base: &Policies, condition: impl Fn(usize) -> String) -> Policies {
        let policy = |n: usize, size: usize| {
            let text = format!("forbid (principal, action, resource is Path) when {{ {} }};", condition(size));
            (format!("p{n}"), text)
        };
        let weighs = |size: usize| {
            let one = base.with_tenant(&[policy(0, size)]).ok()?;
            Some((size, MAX_TENANT_WEIGHT / one.weight_of_tenants()))
        };
        // One of few and large, or of many and small.
        let (size, many) = [120, 60, 30, 15].into_iter().find_map(weighs).expect("one of them fits");
        let many = many.min(MAX_TENANT_POLICIES).min(MAX_TENANT_BYTES / policy(0, size).1.len());
        base.with_tenant(&(0..many).map(|n| policy(n, size)).collect::<Vec<_>>()).expect("they fit together")
    }

    #[test]
    fn a_decision_by_the_heaviest_policies_takes_no_longer_than_some_by_light_ones() {
        // In an unoptimized build a chain of a hundred operators takes more stack than a test's thread has.
        crate::bounds::on_own_stack(|| {
            heaviest_and_lightest();
            Ok(())
        })
        .unwrap();
    }

    #[allow(clippy::disallowed_methods, reason = "real time is what is measured")]
    fn heaviest_and_lightest() {
        let base = Policies::new(&[]).unwrap();
        // Everything almost matches everywhere.
        let path = format!("/tenants/acme{}", format!("/{}", "a".repeat(254)).repeat(MAX_PATH_BYTES / 256));
        let path = PathFacts::plain(path.parse().unwrap());
        let ana = Principal::new("acme".parse().unwrap(), "ana".parse().unwrap());
        let heard = Arc::new(Mutex::new(None));
        let hears = Arc::clone(&heard);
        let judge = base.judge(&ana, 0).before(Arc::new(move |one| *hears.lock().unwrap() = Some(one.clone())));
        assert!(judge.allows_read(ReadAction::Read, &path, &Revision::Branch(BranchName::main())));
        let request = heard.lock().unwrap().take().unwrap();
        let took = |set: &Policies| {
            let once = || {
                let start = std::time::Instant::now();
                assert!(set.decides(&request));
                start.elapsed()
            };
            (0..15).map(|_| once()).min().unwrap_or(Duration::MAX)
        };
        let light = took(&base);
        let chain = |link: &str, times: usize| vec![link; times].join(" || ");
        // Evaluating, unlike all else, takes an unoptimized build a hundred times as long.
        let most = if cfg!(debug_assertions) { 200 } else { 40 };
        // Each such that Cedar has to look at all of it.
        for (name, set) in [
            ("patterns", heaviest(&base, |n| format!(r#"!(!(resource.path like "*{}b*"))"#, "a".repeat(n / 2)))),
            ("empty patterns", heaviest(&base, |n| format!("!(!({}))", chain(r#"resource.path like """#, n / 3)))),
            ("sets", heaviest(&base, |n| format!("[{}].contains(resource.path)", vec![r#""a""#; 30 * n].join(",")))),
            ("operators", heaviest(&base, |n| chain("resource.protected", n))),
            ("times", heaviest(&base, |n| chain(r#"context.time > datetime("2031-01-01")"#, n / 4))),
        ] {
            let heavy = took(&set);
            assert!(heavy < most * light, "{name}: {heavy:?}, and {light:?} without");
        }
    }
}
