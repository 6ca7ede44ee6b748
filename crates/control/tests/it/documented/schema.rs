//! Whether a value is what a schema of the document says: as much of JSON Schema as the document uses, and no more.

use serde_json::{Map, Value};

/// Keywords that say nothing about whether a value fits.
const NOTES: [&str; 7] = ["description", "title", "format", "default", "uniqueItems", "examples", "deprecated"];

/// # Errors
/// With the place and what does not fit. An object has no field that its schema does not name.
pub fn fits(document: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    Fit { document }.all(schema, value, "", true)
}

struct Fit<'a> {
    document: &'a Value,
}

impl Fit<'_> {
    /// `closed`: whether fields that the schema does not name are too many.
    fn all(&self, schema: &Value, value: &Value, at: &str, closed: bool) -> Result<(), String> {
        let Value::Object(keywords) = schema else {
            return if *schema == Value::Bool(true) { Ok(()) } else { Err(format!("{at}: nothing fits {schema}")) };
        };
        let parts = ["anyOf", "oneOf", "allOf", "$ref"].iter().any(|name| keywords.contains_key(*name));
        let fields_elsewhere = parts && keywords.contains_key("properties");
        for (keyword, says) in keywords {
            self.one(keywords, keyword, says, value, at, closed && !fields_elsewhere)?;
        }
        Ok(())
    }

    fn one(
        &self,
        keywords: &Map<String, Value>,
        keyword: &str,
        says: &Value,
        value: &Value,
        at: &str,
        closed: bool,
    ) -> Result<(), String> {
        let ensure = |fits: bool| if fits { Ok(()) } else { Err(format!("{at}: {value} is not `{keyword}` {says}")) };
        match keyword {
            "$ref" => {
                let place = says.as_str().and_then(|place| place.strip_prefix('#')).unwrap_or_default();
                let schema = self.document.pointer(place).ok_or_else(|| format!("{at}: there is no {says}"))?;
                self.all(schema, value, at, closed)
            }
            "anyOf" | "oneOf" => {
                let tried: Vec<_> = items(says).map(|schema| self.all(schema, value, at, closed)).collect();
                if tried.iter().any(Result::is_ok) { Ok(()) } else { Err(format!("{at}: none fits: {tried:?}")) }
            }
            "allOf" => items(says).try_for_each(|schema| self.all(schema, value, at, closed)),
            "type" => ensure(
                says.as_str().into_iter().chain(items(says).filter_map(Value::as_str)).any(|kind| is(value, kind)),
            ),
            "const" => ensure(value == says),
            "enum" => ensure(items(says).any(|one| one == value)),
            "minimum" => ensure(value.as_f64().is_none_or(|number| Some(number) >= says.as_f64())),
            "maximum" => ensure(value.as_f64().is_none_or(|number| Some(number) <= says.as_f64())),
            "maxLength" | "minLength" | "pattern" => Ok(()),
            "required" => ensure(
                value
                    .as_object()
                    .is_none_or(|value| items(says).filter_map(Value::as_str).all(|name| value.contains_key(name))),
            ),
            "items" => value.as_array().into_iter().flatten().try_for_each(|one| self.all(says, one, at, true)),
            "properties" => self.fields(keywords, says, value, at, closed),
            "additionalProperties" if keywords.contains_key("properties") => Ok(()),
            "additionalProperties" => self.fields(keywords, &Value::Null, value, at, closed),
            other if NOTES.contains(&other) => Ok(()),
            other => Err(format!("{at}: this test does not know the keyword `{other}`")),
        }
    }

    fn fields(
        &self,
        keywords: &Map<String, Value>,
        known: &Value,
        value: &Value,
        at: &str,
        closed: bool,
    ) -> Result<(), String> {
        for (name, field) in value.as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            match (known.get(name), keywords.get("additionalProperties")) {
                (Some(schema), _) | (None, Some(schema @ Value::Object(_))) => self.all(schema, field, &at, true)?,
                (None, Some(Value::Bool(true))) => {}
                (None, _) if !closed => {}
                (None, _) => return Err(format!("{at} is not in the document")),
            }
        }
        Ok(())
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => false,
    }
}
