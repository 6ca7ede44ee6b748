//! Query strings.

/// The value of `key` in a query, decoded; `None` if it is not there or not UTF-8.
#[must_use]
pub fn value(query: Option<&str>, key: &str) -> Option<String> {
    let pairs = query?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.into_iter().find(|(name, _)| decode(name).as_deref() == Some(key))?;
    decode(value)
}

/// Undoes percent encoding once; a `%` without two hex digits stands for itself.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    rest = after;
                }
                _ => bytes.push(b'%'),
            },
            (b'+', _) => bytes.push(b' '),
            (other, _) => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_once() {
        let query = Some("a=1&path=%2Fx%20y%252e+z&user%6eame=u&bad=%zz%");
        assert_eq!(value(query, "path").as_deref(), Some("/x y%2e z"));
        assert_eq!(value(query, "username").as_deref(), Some("u"));
        assert_eq!(value(query, "bad").as_deref(), Some("%zz%"));
        assert_eq!(value(query, "none"), None);
        assert_eq!(value(Some("path=%ff"), "path"), None);
    }
}
