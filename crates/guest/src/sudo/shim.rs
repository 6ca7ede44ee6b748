//! stub
use std::process::ExitCode;
pub fn main(_a: Vec<std::ffi::OsString>) -> ExitCode {
    ExitCode::FAILURE
}
