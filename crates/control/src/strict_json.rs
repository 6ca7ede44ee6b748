//! JSON from strangers: no key twice at any depth, no number that no machine holds, no object without end.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Most keys of one object.
const MAX_KEYS: usize = 4096;

/// Walks `text` and keeps nothing of it.
///
/// # Errors
/// When it is not JSON, an object has a key twice, or anything follows the value.
pub(crate) fn check(text: &[u8]) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    Well.deserialize(&mut deserializer).and_then(|()| deserializer.end())
}

/// Walks a value of any shape and keeps nothing of it.
struct Well;

impl<'de> DeserializeSeed<'de> for Well {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Well {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if seen.len() >= MAX_KEYS {
                return Err(de::Error::custom(format!("an object has more than {MAX_KEYS} keys")));
            }
            if seen.contains(&key) {
                let name: String = key.chars().take(64).flat_map(char::escape_default).collect();
                return Err(de::Error::custom(format!("doubled key `{name}`")));
            }
            seen.insert(key);
            entries.next_value_seed(Self)?;
        }
        Ok(())
    }
}
