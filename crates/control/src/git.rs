//! Git's smart HTTP, as far as it is spoken here and not by git itself: lines, advertisements, what a request asks for,
//! and the report on a push.
//!
//! All of it parses bounded bytes and makes bytes; who may do what is [`crate::ops`]' matter.

pub(crate) mod advertise;
pub(crate) mod fetch;
pub(crate) mod pkt;
pub(crate) mod push;
