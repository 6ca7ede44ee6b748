//! The document and the server say the same.

use std::path::Path;

use bailey_control::http::openapi;

#[test]
fn the_checked_in_document_is_the_servers() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&file, openapi::text()).unwrap();
    }
    let checked_in = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = checked_in.lines().zip(openapi::text().lines()).find(|(one, other)| one != other);
    assert!(
        checked_in == openapi::text(),
        "docs/openapi.json is not what the server says, from {differs:?} on: write it anew with \
         `UPDATE_OPENAPI=1 cargo test -p bailey-control --test it openapi` or `bailey openapi`"
    );
}
