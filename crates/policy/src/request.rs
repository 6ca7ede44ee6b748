//! One question as data: who asks, for what, on what, and when. It is what policies see and nothing else, so that it
//! can be kept, changed a little and asked again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::action::Action;

/// Kinds of entities. The names are those of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A customer.
    Tenant,
    /// This server.
    System,
    /// A user of a tenant.
    User,
    /// A product that acts for tenants.
    ServiceAccount,
    /// Who runs the server.
    Operator,
    /// A path in a tree.
    Path,
    /// One run.
    Run,
    /// What a sandbox starts from.
    Template,
    /// The sandbox that a run is to get.
    Sandbox,
}

impl Kind {
    /// Every kind, in the order of their discriminants.
    pub(crate) const ALL: [Self; 9] = [
        Self::Tenant,
        Self::System,
        Self::User,
        Self::ServiceAccount,
        Self::Operator,
        Self::Path,
        Self::Run,
        Self::Template,
        Self::Sandbox,
    ];

    /// The name in the schema.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "Tenant",
            Self::System => "System",
            Self::User => "User",
            Self::ServiceAccount => "ServiceAccount",
            Self::Operator => "Operator",
            Self::Path => "Path",
            Self::Run => "Run",
            Self::Template => "Template",
            Self::Sandbox => "Sandbox",
        }
    }
}

/// The name of an entity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Link {
    /// Which kind.
    pub kind: Kind,
    /// Which one.
    pub id: String,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// Yes or no.
    Bool(bool),
    /// A number.
    Long(i64),
    /// A text.
    Text(String),
    /// A point in time, in milliseconds since 1970.
    Time(u64),
    /// Another entity.
    Link(Link),
    /// Several values.
    Set(BTreeSet<Value>),
}

/// Attributes by name.
pub type Attributes = BTreeMap<Cow<'static, str>, Value>;

/// An entity with its attributes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// Its name.
    pub link: Link,
    /// What is known of it.
    pub attributes: Attributes,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Request {
    /// Who asks.
    pub principal: Subject,
    /// For what.
    pub action: Action,
    /// On what.
    pub resource: Subject,
    /// The tenant of a user who asks, where it is not the resource.
    pub tenant: Option<Subject>,
    /// What else is known.
    pub context: Attributes,
}

impl Request {
    /// The tenant of whoever asks, for a user.
    #[must_use]
    pub fn tenant_of_principal(&self) -> Option<&str> {
        tenant_of(&self.principal)
    }

    /// Whether the resource belongs to the tenant of the user who asks and to no other user: then the user may learn
    /// about it.
    #[must_use]
    pub fn is_on_own(&self) -> bool {
        let own = self.tenant_of_principal();
        let another = match self.resource.attributes.get("owner") {
            Some(Value::Link(owner)) => *owner != self.principal.link,
            Some(_) => true,
            None => false,
        };
        own.is_some() && own == tenant_of(&self.resource) && !another
    }
}

fn tenant_of(subject: &Subject) -> Option<&str> {
    match subject.attributes.get("tenant") {
        Some(Value::Link(link)) => Some(&link.id),
        Some(_) | None => None,
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{:?}", self.kind.as_str(), self.id)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Long(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Time(value) => f.write_str(&crate::entities::rfc3339(*value)),
            Self::Link(value) => value.fmt(f),
            Self::Set(values) => {
                f.write_str("[")?;
                for (n, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if n == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}
