//! stub
#[derive(Debug, Default)]
pub struct Watchers;
