//! The OpenAPI document, made of the same table as the router.
//!
//! `docs/openapi.json` is a copy that a test compares; `bailey openapi` prints it.

use std::sync::LazyLock;

use bailey_protocol::api::{CutOff, ErrorBody};
use http::Method;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::arguments::{Content, Describe, Given, Who};
use super::route::Route;
use super::routes;

/// One operation, for those who walk over all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// `GET`, `PUT`…
    pub method: String,
    /// With `{name}` for what varies.
    pub path: String,
    /// Its id.
    pub id: String,
    /// Who may ask: `anyone`, `signer`, `user`, `service` or `operator`.
    pub who: &'static str,
}

/// The document, one line per value, the same for the same table.
#[must_use]
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = format!("{:#}", sorted(document(&routes::table())));
        text.push('\n');
        text
    });
    &TEXT
}

/// Every operation of the document.
#[must_use]
pub fn operations() -> Vec<Operation> {
    let operation = |route: Route| Operation {
        method: route.method.to_string(),
        path: shown(route.path),
        id: route.id.to_owned(),
        who: word(route.takes.who),
    };
    routes::table().into_iter().map(operation).collect()
}

/// Method, path as the router writes it, and id of every operation.
fn names() -> &'static [(Method, &'static str, &'static str)] {
    static NAMES: LazyLock<Vec<(Method, &str, &str)>> = LazyLock::new(|| {
        let named = |route: Route| (route.method, route.path, route.id);
        routes::table().into_iter().map(named).collect()
    });
    &NAMES
}

/// The id of the operation that a method has on a route. Whoever answers a `GET` answers a `HEAD`.
pub(super) fn operation_of(method: &Method, route: &str) -> Option<&'static str> {
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    names().iter().find(|(known, path, _)| known == method && *path == route).map(|(.., id)| *id)
}

/// The operations that a hint names, as `GET /v1/runs`. What varies at the end of the path may be left out.
pub(super) fn named_in(hint: &str) -> Vec<&'static str> {
    let words: Vec<&str> = hint.split_whitespace().map(|word| word.trim_matches(['.', ',', ':', ';', '`'])).collect();
    let found = words.windows(2).filter_map(|pair| {
        let [method, path] = pair else { return None };
        let fits = |route: &str| {
            let mut given = path.split('/');
            route.split('/').all(|part| match given.next() {
                Some(given) => given == part || part.starts_with('{'),
                None => part.starts_with('{'),
            }) && (route.contains("{*") || given.next().is_none())
        };
        names().iter().find(|(known, route, _)| known.as_str() == *method && fits(route)).map(|(.., id)| *id)
    });
    found.collect()
}

fn document(table: &[Route]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in table {
        let path = paths.entry(shown(route.path)).or_insert_with(|| json!({}));
        if let Some(path) = path.as_object_mut() {
            path.insert(route.method.as_str().to_ascii_lowercase(), operation(route, &mut generator));
        }
    }
    // Named before the definitions are taken, so that it is one of them.
    let _references = (generator.subschema_for::<ErrorBody>(), generator.subschema_for::<CutOff>());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Bailey",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs code that nobody reviewed, over one tenant's files, inside a wall.",
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "A token, an API key or a tree token." },
                "api_key": { "type": "apiKey", "in": "header", "name": "X-API-KEY", "description": "An API key." },
                "signature": {
                    "type": "apiKey", "in": "header", "name": "Bailey-Signature",
                    "description": "An HMAC-SHA-256 over the time and the body.",
                },
            },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let takes = &route.takes;
    let mut parameters = path_parameters(route.path);
    if let Some(describe) = takes.query {
        parameters.extend(query_parameters(&describe(generator)));
    }
    parameters.extend(takes.headers.iter().map(
        |(name, what)| json!({ "name": name, "in": "header", "description": what, "schema": { "type": "string" } }),
    ));
    let mut responses = Map::new();
    for given in &route.given {
        let response = responses.entry(given.status.to_string());
        give(response.or_insert_with(|| json!({ "description": meaning(given.status) })), given, generator);
    }
    for status in &takes.errors {
        let mut error = json!({ "application/json": { "schema": { "$ref": "#/components/schemas/ErrorBody" } } });
        if takes.text_errors {
            error["text/plain"] = json!({});
        }
        let meaning = match (status, takes.max_body) {
            (413, Some(bytes)) => format!("Too large: the body has more than {bytes} bytes, or what comes of it."),
            _ => meaning(*status).to_owned(),
        };
        responses.insert(status.to_string(), json!({ "description": meaning, "content": error }));
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "x-bailey-who": word(takes.who),
        "security": security(takes.who),
        "responses": responses,
    });
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = &takes.body {
        // Whatever is no JSON may be empty: an empty file, say.
        let required = !matches!(body, Content::Bytes(_));
        let kinds = media(body, generator).into_iter();
        let content: Map<_, _> = kinds.map(|(kind, media)| (kind.to_owned(), media)).collect();
        operation["requestBody"] = json!({ "required": required, "content": content });
    }
    operation
}

/// Adds to a status what one more answer of it may be.
fn give(response: &mut Value, given: &Given, generator: &mut SchemaGenerator) {
    for (kind, media) in given.content.iter().flat_map(|content| media(content, generator)) {
        let known = &mut response["content"][kind];
        *known = match (known["schema"].take(), media) {
            (Value::Null, media) => media,
            (other, media) => json!({ "schema": { "anyOf": [other, media["schema"]] } }),
        };
    }
    for (name, what) in given.headers {
        response["headers"][name] = json!({ "description": what, "schema": { "type": "string" } });
    }
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    names
        .map(|name| {
            let rest = name.strip_prefix('*');
            let mut parameter = json!({
                "name": rest.unwrap_or(name), "in": "path", "required": true, "schema": { "type": "string" },
            });
            if rest.is_some() {
                parameter["description"] = json!("The rest of the path, slashes included, each name percent-encoded.");
            }
            parameter
        })
        .collect()
}

fn query_parameters(schema: &Schema) -> Vec<Value> {
    let required = |name: &str| {
        let list = schema.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|item| item == name))
    };
    let fields = schema.get("properties").and_then(Value::as_object);
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        let mut parameter = json!({ "name": name, "in": "query", "required": required(name), "schema": schema });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        parameter
    };
    fields.into_iter().flatten().map(parameter).collect()
}

/// Media types, and what is in each.
fn media(content: &Content, generator: &mut SchemaGenerator) -> Vec<(&'static str, Value)> {
    let mut one = |describe: &Describe| json!({ "schema": describe(generator) });
    // A stream that breaks off says why.
    let lines = |mut media: Value| {
        let cut_off = json!({ "$ref": "#/components/schemas/CutOff" });
        json!({ "schema": { "description": "One line.", "anyOf": [media["schema"].take(), cut_off] } })
    };
    match content {
        Content::Json(describe) => vec![("application/json", one(describe))],
        Content::Form(describe) => vec![("application/x-www-form-urlencoded", one(describe))],
        Content::Lines(describe) => vec![("application/x-ndjson", lines(one(describe)))],
        Content::Events(describe) => {
            let event = one(describe);
            vec![("application/x-ndjson", lines(event.clone())), ("text/event-stream", event)]
        }
        Content::Bytes(kinds) => kinds.iter().map(|kind| (*kind, json!({}))).collect(),
    }
}

fn security(who: Who) -> Value {
    match who {
        Who::Anyone => json!([]),
        Who::Signer => json!([{ "signature": [] }]),
        Who::User => json!([{ "bearer": [] }, { "api_key": [] }]),
        Who::Service | Who::Operator => json!([{ "bearer": [] }]),
    }
}

fn word(who: Who) -> &'static str {
    match who {
        Who::Anyone => "anyone",
        Who::Signer => "signer",
        Who::User => "user",
        Who::Service => "service",
        Who::Operator => "operator",
    }
}

/// The path as the document writes it.
fn shown(path: &str) -> String {
    path.replace("{*", "{")
}

fn meaning(status: u16) -> &'static str {
    match status {
        200 => "Done.",
        201 => "Made.",
        202 => "Accepted.",
        204 => "Done; there is nothing to say.",
        206 => "The part that was asked for.",
        304 => "It has not changed.",
        400 => "The request cannot be carried out as it is.",
        401 => "The credential is missing or does not hold.",
        403 => "Denied; `policies` names what decided.",
        404 => "There is nothing of that name.",
        408 => "The body came too slowly.",
        409 => "Something else came first.",
        410 => "The version is not kept any more, or was purged; `purge` names the receipt.",
        412 => "What the request was based on has changed.",
        413 => "Too large.",
        415 => "The wrong type of body.",
        416 => "No such range.",
        429 => "There is no room now.",
        500 => "Something broke inside the server.",
        503 => "The server takes no work at the moment.",
        507 => "There is no space.",
        _ => "See `error`.",
    }
}

/// With the keys of every object in order, whatever map the JSON library was built with.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_operations() {
        for (hint, expected) in [
            ("List your runs with GET /v1/runs.", &["list_runs"][..]),
            ("See GET /v1/tree-history for versions.", &["tree_history"]),
            ("See GET /v1/purges/purge_1 for the receipt.", &["show_purge"]),
            ("Revoke keys: DELETE /v1/keys/{key}.", &["revoke_key"]),
            ("that promoted: POST /v1/forks, then POST /v1/promotions.", &["fork", "promote"]),
            ("a service account gets one at `POST /v1/token`.", &["exchange_token"]),
            ("GET /v1/runs/a/b, GET /v1/nothing, and GET nothing", &[]),
            ("", &[]),
        ] {
            assert_eq!(named_in(hint), expected, "{hint}");
        }
    }

    #[test]
    fn handlers_take_what_their_paths_name() {
        for route in routes::table() {
            let names = route.path.matches('{').count();
            let rest = route.path.contains("{*");
            assert_eq!(route.takes.segments, names - usize::from(rest), "{}", route.path);
            assert_eq!(route.takes.rest, rest, "{}", route.path);
            assert!(!route.given.is_empty(), "{} answers nothing", route.path);
        }
    }
}
