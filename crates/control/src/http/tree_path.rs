//! The part of a URL that names a path in a tree, decoded exactly once.

use bailey_protocol::path::{TreePath, text_of};

use crate::api_error::ApiError;

/// The tree path behind `prefix` (such as `/v1/tree`) in a URL's raw path.
///
/// # Errors
/// When the escapes are not valid, or the result is not a canonical tree path.
pub(super) fn parse(raw: &str, prefix: &str) -> Result<TreePath, ApiError> {
    let encoded = raw.strip_prefix(prefix).unwrap_or(raw);
    let hint = "Escape each byte once: a space is `%20`, a percent sign is `%25`.";
    let bytes = decode(encoded)
        .ok_or_else(|| ApiError::invalid("invalid_escape", "the URL holds a broken `%` escape", hint))?;
    // What is UTF-8 is a path's text, and anything else its bytes.
    let text = String::from_utf8(bytes).unwrap_or_else(|error| text_of(error.as_bytes()).into_owned());
    Ok(text.parse()?)
}

fn decode(encoded: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => digit(rest.next()?)? * 16 + digit(rest.next()?)?,
            plain => plain,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f01_every_spelling_is_refused_or_stays_inside() {
        let deep = format!("tenants/acme{}", "/n".repeat(2100));
        let long = format!("tenants/acme/{}", "n".repeat(256));
        for (encoded, expected) in [
            ("tenants/acme/x", Some("/tenants/acme/x")),
            ("tenants/acme/../globex", None),
            ("tenants/acme/..%2fglobex", None),
            ("tenants/acme/%2e%2e/globex", None),
            ("tenants%2facme/%2e%2e%2fglobex", None),
            ("tenants/acme/%252e%252e/x", Some("/tenants/acme/%2e%2e/x")),
            ("tenants/acme/..%5cglobex", Some("/tenants/acme/..\\globex")),
            ("tenants/acme/....//x", None),
            ("tenants/acme/..../x", Some("/tenants/acme/..../x")),
            ("tenants/acme/%ef%bc%8e%ef%bc%8e/x", Some("/tenants/acme/．．/x")),
            ("tenants/acme/%c0%ae%c0%ae/x", Some("/tenants/acme/\u{10ffc0}\u{10ffae}\u{10ffc0}\u{10ffae}/x")),
            ("tenants/acme/a%ff", Some("/tenants/acme/a\u{10ffff}")),
            ("tenants/acme/a%f4%8f%bf%bf", Some("/tenants/acme/a\u{10ffff}")),
            ("tenants/acme/%f4%8f%bf%83%f4%8f%be%a9", None),
            ("tenants/%ff/x", None),
            ("tenants/acme/x%00y", None),
            ("tenants/acme/.", None),
            ("tenants/acme/%2e", None),
            ("tenants/acme/trailing.", Some("/tenants/acme/trailing.")),
            ("tenants/acme/trailing%20", Some("/tenants/acme/trailing ")),
            ("tenants/acme/a%0d%0ab", Some("/tenants/acme/a\r\nb")),
            ("tenants/acme/a+b", Some("/tenants/acme/a+b")),
            ("tenants/acme//x", None),
            ("tenants/acme/", None),
            ("/etc/passwd", None),
            ("..%2f..%2fetc%2fpasswd", None),
            ("proc/self/root/etc/passwd", None),
            ("tenants/acme/%zz", None),
            ("tenants/acme/%2", None),
            ("tenants/acme/%", None),
            ("tenants/acme/%+f", None),
            (&deep, None),
            (&long, None),
        ] {
            let path = parse(&format!("/v1/tree/{encoded}"), "/v1/tree").ok();
            assert_eq!(path.as_ref().map(TreePath::as_str), expected, "{encoded}");
            assert!(path.is_none_or(|path| path.tenant().as_str() == "acme"));
        }
    }
}
