//! Control over real HTTP, with a real database, real policies and real trees, and a node that follows a script.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, reason = "a test fails by panicking")]
#![allow(missing_debug_implementations, unreachable_pub, reason = "nobody outside uses a test's types")]

mod attenuation;
mod audit;
mod below;
mod branch_rules;
mod branches;
mod client;
mod credentials;
mod cut;
mod disk;
mod documented;
mod exchange;
mod fences;
mod forget;
mod guards;
mod hostile;
mod io_faults;
mod issuer;
mod issuers;
mod keys;
mod known;
mod meanwhile;
mod newest;
mod node;
mod oidc;
mod openapi;
mod oracle;
mod pace;
mod policy;
mod policy_in_time;
mod restart;
mod run_commit;
mod runs;
mod shares;
mod standing;
mod storage;
mod streams;
mod sweep;
mod tenancy;
mod tenant_facts;
mod tree;
mod trust;
mod verbs;
mod world;
