//! No code outside the crate can make, change or widen a permit: each program in `forged/` is compiled against the
//! crate as it was built, and has to fail with the error that its first line names.
//!
//! Error codes and not messages are compared, so that a newer compiler changes nothing; and the crate is not built
//! again, so that the whole takes a second.

#![allow(clippy::unwrap_used, reason = "helpers of a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles one program; `Ok` or the codes of its errors.
fn compile(program: &Path, library: &Path, out: &Path) -> Result<(), Vec<String>> {
    let mut library_arg = std::ffi::OsString::from("bailey_policy=");
    library_arg.push(library);
    let mut dependencies = std::ffi::OsString::from("dependency=");
    dependencies.push(library.parent().unwrap());
    let output = Command::new("rustc")
        .args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--error-format=json", "--cap-lints=allow"])
        .arg("--out-dir")
        .arg(out)
        .arg("-L")
        .arg(dependencies)
        .arg("--extern")
        .arg(library_arg)
        .arg(program)
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8(output.stderr).unwrap();
    let errors = text.lines().filter(|line| line.contains(r#""level":"error""#));
    Err(errors
        .filter_map(|line| Some(line.split_once(r#""code":{"code":""#)?.1.split_once('"')?.0.to_owned()))
        .collect())
}

/// The library that this test was linked with: the newest that the allowed program compiles against.
fn library(control: &Path, out: &Path) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut found: Vec<_> = fs::read_dir(test.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("libbailey_policy-") && name.ends_with(".rlib")
        })
        .collect();
    found.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().modified().unwrap()));
    let usable = found.into_iter().find(|library| compile(control, library, out).is_ok());
    usable.expect("the allowed program compiles")
}

#[test]
fn no_code_outside_can_make_a_permit() {
    let out = tempfile::tempdir().unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forged");
    let library = library(&folder.join("control.rs"), out.path());
    let mut tried = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let program = entry.unwrap().path();
        let text = fs::read_to_string(&program).unwrap();
        let wanted = text.strip_prefix("//! ").and_then(|text| text.split_once(':')).unwrap().0;
        let name = program.display();
        match compile(&program, &library, out.path()) {
            Ok(()) => assert_eq!(wanted, "compiles", "{name} has to fail"),
            Err(codes) => {
                assert!(!codes.is_empty() && codes.iter().all(|code| code == wanted), "{name}: {codes:?}");
                tried += 1;
            }
        }
    }
    assert!(tried >= 12, "{tried} programs were refused");
}
