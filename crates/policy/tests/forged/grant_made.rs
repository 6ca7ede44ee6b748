//! E0624: a grant's constructor is private.
use bailey_policy::{Action, Grant, Principal};

pub fn forge(who: &Principal) -> Grant {
    Grant::new(who, Action::TreeRead, String::new(), Vec::new())
}
