//! A request as Cedar sees it: entities and context, checked against the schema before any policy runs.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use cedar_policy::{Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, RestrictedExpression, Schema};

use crate::policies::PolicyError;
use crate::request::{Attributes, Kind, Link, Request, Subject, Value};
use crate::vocabulary::ActionWords;

/// The schema's type names, parsed once.
#[derive(Debug)]
pub(crate) struct Words {
    kinds: [EntityTypeName; Kind::ALL.len()],
    /// The schema without its actions.
    of_entities: Schema,
    /// The context of the last request: many paths are asked about at one time, which takes Cedar longer to read than all
    /// else of a context.
    last: Mutex<Option<(Attributes, Context)>>,
}

impl Words {
    /// Checks entities against `of_entities`, which knows no actions.
    pub(crate) fn new(of_entities: Schema) -> Result<Self, PolicyError> {
        let word = |kind: Kind| {
            let name = kind.as_str();
            name.parse().map_err(|source| PolicyError::Word { name, source: Box::new(source) })
        };
        let [tenant, system, user, service, operator, path, run, template, sandbox] = Kind::ALL.map(word);
        let kinds = [tenant?, system?, user?, service?, operator?, path?, run?, template?, sandbox?];
        Ok(Self { kinds, of_entities, last: Mutex::default() })
    }

    fn word(&self, kind: Kind) -> &EntityTypeName {
        let [tenant, system, user, service, operator, path, run, template, sandbox] = &self.kinds;
        match kind {
            Kind::Tenant => tenant,
            Kind::System => system,
            Kind::User => user,
            Kind::ServiceAccount => service,
            Kind::Operator => operator,
            Kind::Path => path,
            Kind::Run => run,
            Kind::Template => template,
            Kind::Sandbox => sandbox,
        }
    }

    /// Cedar's own request.
    pub(crate) fn request(
        &self,
        request: &Request,
        action: &ActionWords,
        schema: &Schema,
    ) -> Result<cedar_policy::Request, PolicyError> {
        let (principal, resource) = (self.uid(&request.principal.link), self.uid(&request.resource.link));
        let context = self.context(&request.context)?;
        cedar_policy::Request::new(principal, action.uid.clone(), resource, context, Some(schema)).map_err(wrong)
    }

    fn context(&self, attributes: &Attributes) -> Result<Context, PolicyError> {
        // It is put there whole, so that what a panicked thread left is one.
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, context)) = last().as_ref().filter(|(known, _)| known == attributes) {
            return Ok(context.clone());
        }
        let pairs = attributes.iter().map(|(name, value)| (name.clone().into_owned(), self.value(value)));
        let context = Context::from_pairs(pairs).map_err(wrong)?;
        *last() = Some((attributes.clone(), context.clone()));
        Ok(context)
    }

    /// What policies may look at through it.
    pub(crate) fn entities(&self, request: &Request, action: &ActionWords) -> Result<Entities, PolicyError> {
        let tenant = request.tenant.as_ref().filter(|tenant| tenant.link != request.resource.link);
        let all = [&request.principal, &request.resource].into_iter().chain(tenant);
        let entities = all.map(|subject| self.entity(subject)).collect::<Result<Vec<_>, _>>()?;
        let entities = Entities::from_entities(entities, Some(&self.of_entities)).map_err(wrong)?;
        entities.add_entities([action.entity.clone()], None).map_err(wrong)
    }

    fn entity(&self, subject: &Subject) -> Result<Entity, PolicyError> {
        let attributes: HashMap<_, _> =
            subject.attributes.iter().map(|(name, value)| (name.clone().into_owned(), self.value(value))).collect();
        // A user is in its tenant.
        let parents: HashSet<_> = match (subject.link.kind, subject.attributes.get("tenant")) {
            (Kind::User, Some(Value::Link(tenant))) => [self.uid(tenant)].into(),
            _ => HashSet::new(),
        };
        Entity::new(self.uid(&subject.link), attributes, parents).map_err(wrong)
    }

    fn uid(&self, link: &Link) -> EntityUid {
        EntityUid::from_type_name_and_id(self.word(link.kind).clone(), EntityId::new(&link.id))
    }

    fn value(&self, value: &Value) -> RestrictedExpression {
        match value {
            Value::Bool(value) => RestrictedExpression::new_bool(*value),
            Value::Long(value) => RestrictedExpression::new_long(*value),
            Value::Text(value) => RestrictedExpression::new_string(value.clone()),
            Value::Time(value) => RestrictedExpression::new_datetime(rfc3339(*value)),
            Value::Link(link) => RestrictedExpression::new_entity_uid(self.uid(link)),
            Value::Set(values) => RestrictedExpression::new_set(values.iter().map(|value| self.value(value))),
        }
    }
}

fn wrong(source: impl std::error::Error + Send + Sync + 'static) -> PolicyError {
    PolicyError::Facts { source: Box::new(source) }
}

/// A point in time as Cedar reads it. Its own range of years is far larger than this one, which ends with the year 9999.
pub(crate) fn rfc3339(ms: u64) -> String {
    let ms = ms.min(253_402_300_799_999);
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (hour, minute, second, milli) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1000 % 60, rest % 1000);
    // Years that begin in March end with the leap day; eras of 400 years all have the same days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, turn) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + turn;
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_calendar_has_them() {
        for (ms, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (u64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(ms), wanted);
        }
    }
}
