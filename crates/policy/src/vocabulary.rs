//! The schema, and what is read from it once: its words, and for each action what may be asked for with it.

use std::collections::{BTreeSet, HashMap, HashSet};

use cedar_policy::{
    ActionConstraint, Authorizer, Entities, Entity, EntityId, EntityTypeName, EntityUid, Schema, SchemaFragment,
    Validator,
};

use crate::action::Action;
use crate::entities::Words;
use crate::policies::PolicyError;

const SCHEMA: &str = include_str!("schema.cedarschema");

/// What all sets of policies have in common.
pub(crate) struct Vocabulary {
    /// Knows the schema. Made once: it holds a copy.
    pub(crate) validator: Validator,
    pub(crate) authorizer: Authorizer,
    pub(crate) words: Words,
    actions: HashMap<Action, ActionWords>,
}

/// One action, as the schema has it.
#[derive(Debug)]
pub(crate) struct ActionWords {
    pub(crate) uid: EntityUid,
    /// It, in all of its groups.
    pub(crate) entity: Entity,
    groups: HashSet<EntityUid>,
    /// Who may ask for it, and on what: a request of another kind is refused before any policy is asked.
    pub(crate) principals: BTreeSet<EntityTypeName>,
    pub(crate) resources: BTreeSet<EntityTypeName>,
}

impl ActionWords {
    /// Whether a policy that names `constraint` is about this action.
    pub(crate) fn fits(&self, constraint: &ActionConstraint) -> bool {
        let named = |uid: &EntityUid| *uid == self.uid || self.groups.contains(uid);
        match constraint {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(uid) => named(uid),
            ActionConstraint::In(uids) => uids.iter().any(named),
        }
    }
}

impl Vocabulary {
    pub(crate) fn new() -> Result<Self, PolicyError> {
        let (schema, _warnings) = Schema::from_cedarschema_str(SCHEMA).map_err(unusable)?;
        let words = Words::new(without_actions()?)?;
        let kind: EntityTypeName =
            "Action".parse().map_err(|source| PolicyError::Word { name: "Action", source: Box::new(source) })?;
        let hierarchy = schema.action_entities().map_err(unusable)?;
        let actions = Action::ALL.iter().map(|action| (*action, action_words(*action, &kind, &hierarchy, &schema)));
        let actions = actions.collect();
        Ok(Self { validator: Validator::new(schema), authorizer: Authorizer::new(), words, actions })
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.validator.schema()
    }

    pub(crate) fn action(&self, action: Action) -> Result<&ActionWords, PolicyError> {
        self.actions.get(&action).ok_or_else(|| PolicyError::Facts { source: "unknown action".into() })
    }
}

fn action_words(action: Action, kind: &EntityTypeName, hierarchy: &Entities, schema: &Schema) -> ActionWords {
    let uid = EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(action.as_str()));
    let groups: HashSet<EntityUid> = hierarchy.ancestors(&uid).into_iter().flatten().cloned().collect();
    let entity = Entity::new_no_attrs(uid.clone(), groups.clone());
    let (mut principals, mut resources) = (BTreeSet::new(), BTreeSet::new());
    for env in schema.request_envs().filter(|env| *env.action() == uid) {
        principals.insert(env.principal().clone());
        resources.insert(env.resource().clone());
    }
    ActionWords { uid, entity, groups, principals, resources }
}

/// The schema's entities alone. Checked against this, a request's are not given every action there is as well, which
/// takes longer than the check.
fn without_actions() -> Result<Schema, PolicyError> {
    let (fragment, _warnings) = SchemaFragment::from_cedarschema_str(SCHEMA).map_err(unusable)?;
    let mut json = fragment.to_json_value().map_err(unusable)?;
    for namespace in json.as_object_mut().into_iter().flat_map(|names| names.values_mut()) {
        if let Some(actions) = namespace.get_mut("actions") {
            *actions = serde_json::json!({});
        }
    }
    Schema::from_json_value(json).map_err(unusable)
}

fn unusable(source: impl std::error::Error + Send + Sync + 'static) -> PolicyError {
    PolicyError::Schema { source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_is_about_what_the_schema_says() {
        let vocabulary = Vocabulary::new().unwrap();
        for action in Action::ALL {
            let words = vocabulary.action(*action).unwrap();
            let users = words.principals.iter().any(|kind| kind.to_string() == "User");
            let about = users.then(|| words.resources.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(action.about().map(|kind| vec![kind.to_string()]), about, "{action}");
        }
    }
}
