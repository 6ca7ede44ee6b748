//! G01: each fence that the guest puts up around the code is an error that names it when the kernel refuses it, and
//! the code does not run.

use serde_json::json;

use crate::guest::{Guest, init_request, required};

#[tokio::test]
async fn g01_a_claim_without_landlock_is_an_error_that_says_so() {
    required();
    // Create a ruleset, add a rule, restrict, no new privileges.
    for (number, first) in [(444, None), (445, None), (446, None), (157, Some(38))] {
        let guest = Guest::park_refusing(number, first);
        let (status, answer) = guest.call("/init", &init_request(false)).await;
        assert_eq!(status, 500, "{number}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains("Landlock"), "{number}: {answer}");
        let (status, answer) = guest.call("/process.Process/List", &json!({})).await;
        assert_eq!((status, answer["code"].as_str()), (400, Some("failed_precondition")), "{number}: it goes on");
    }
}

#[tokio::test]
async fn g01_an_exec_without_a_fence_is_an_error_that_names_it() {
    required();
    let refused = [
        ("Session", libc::SYS_setsid, None),
        // The bounding set, the secure bits, groups, group, user, capabilities.
        ("Identity", libc::SYS_prctl, Some(24)),
        ("Identity", libc::SYS_prctl, Some(28)),
        ("Identity", libc::SYS_setgroups, None),
        ("Identity", libc::SYS_setresgid, None),
        ("Identity", libc::SYS_setresuid, None),
        ("Identity", libc::SYS_capset, None),
        ("Close", libc::SYS_close_range, None),
        ("Filters", libc::SYS_seccomp, None),
    ];
    for (step, number, first) in refused {
        let guest = Guest::park_refusing(number, first);
        let (status, answer) = guest.call("/init", &init_request(true)).await;
        assert_eq!(status, 200, "{number}: {answer}");
        for user in ["user", "root"] {
            let outcome = guest.shell_as("echo it runs", user).await;
            let error = outcome.error["message"].as_str().unwrap_or_default();
            assert!(error.contains(step), "{step} ({number}, {first:?}), as {user}: {outcome:?}");
            assert!(outcome.stdout.is_empty() && outcome.end.is_null(), "{step}: {outcome:?}");
        }
    }
}
