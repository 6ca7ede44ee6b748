use proptest::prelude::*;

use super::*;

#[test]
fn what_git_forbids_is_escaped() {
    for bad in [
        ".git",
        ".GIT",
        ".git ",
        ".git.",
        ".git . .",
        ".git:stream",
        ".git::$INDEX_ALLOCATION",
        "git~1",
        "GIT~1",
        "x\\.git",
        "a\\b\\git~1",
        ".g\u{200c}it",
        "\u{feff}.git",
        ".gi\u{206a}t",
        ".GitModules",
        "gitmod~4",
        "gi7eba~1",
        "gi~12345",
        "~1000000",
        ".GITATTRIBUTES",
        ".gitattributes.",
        "bailey=",
        "bailey=.git",
        "bailey==3d",
    ] {
        let stored = escape(bad.as_bytes());
        assert_ne!(stored, bad.as_bytes(), "{bad:?}");
        assert!(!is_reserved(&stored), "{bad:?} -> {stored:?}");
        assert_eq!(unescape(&stored), bad.as_bytes());
    }
}

#[test]
fn ordinary_names_are_stored_as_they_are() {
    for good in [
        "a",
        ".gitignore",
        ".gitmodules",
        ".gitattributes",
        ".github",
        "git",
        "git~",
        "x.git",
        "=1.0",
        "back\\slash",
        "é",
        "bailey",
        "a:b",
        "...",
    ] {
        assert_eq!(escape(good.as_bytes()), good.as_bytes(), "{good:?}");
    }
    assert_eq!(escape(b".git"), &b"bailey=.git"[..]);
}

#[test]
fn a_broken_escape_stands_for_itself() {
    for odd in ["bailey==", "bailey==3", "bailey==ff", "bailey==3D"] {
        assert_eq!(unescape(odd.as_bytes()), odd.as_bytes());
    }
}

proptest! {
    #[test]
    fn every_name_comes_back(name in proptest::collection::vec(any::<u8>(), 1..64)) {
        prop_assert_eq!(unescape(&escape(&name)).into_owned(), name);
    }

    #[test]
    fn names_made_of_tricky_parts_come_back_and_are_never_reserved(
        parts in proptest::collection::vec(
            prop::sample::select(vec![".git", "git~1", "\\", "=", "bailey=", "3d", ".", " ", ":", "\u{200c}", "modules", "x", "~", "1"]),
            1..6,
        )
    ) {
        let name = parts.concat();
        let stored = escape(name.as_bytes()).into_owned();
        prop_assert!(is_gits_file(&stored) || !is_reserved(&stored));
        prop_assert_eq!(unescape(&stored).into_owned(), name.into_bytes());
    }
}
