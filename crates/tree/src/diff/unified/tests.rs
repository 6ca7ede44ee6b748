use super::*;

fn rendered(names: (Option<&str>, Option<&str>), before: &str, after: &str) -> String {
    render(names, before, after, &mut Budget::default())
}

fn diff(before: &str, after: &str) -> String {
    rendered((Some("f"), Some("f")), before, after)
}

#[test]
fn a_change_has_three_lines_around_it() {
    let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
    let after = before.replace("10\n", "ten\n");
    let expected = "--- a/f\n+++ b/f\n@@ -7,7 +7,7 @@\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n";
    assert_eq!(diff(&before, &after), expected);
}

#[test]
fn near_changes_share_a_hunk_and_far_ones_do_not() {
    let before: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    let near = before.replace("line 10\n", "x\n").replace("line 17\n", "y\n");
    assert_eq!(diff(&before, &near).matches("@@ -").count(), 1);
    let far = before.replace("line 10\n", "x\n").replace("line 18\n", "y\n");
    assert_eq!(diff(&before, &far).matches("@@ -").count(), 2);
}

#[test]
fn missing_sides_and_missing_line_ends() {
    assert_eq!(
        rendered((None, Some("f")), "", "a"),
        "--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@\n+a\n\\ No newline at end of file\n"
    );
    assert_eq!(rendered((Some("f"), None), "a\n", ""), "--- a/f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n");
    assert!(rendered((Some("a\n+++ b/x"), None), "a\n", "").starts_with("--- a/a?+++ b/x\n"));
}

#[test]
fn a_quarter_mebibyte_of_different_lines_is_quick_enough() {
    let text = |seed: u32| {
        (0..131_072_u32)
            .map(|n| char::from(b'a' + ((n.wrapping_mul(seed) >> 13) % 26) as u8))
            .flat_map(|c| [c, '\n'])
            .collect::<String>()
    };
    assert!(diff(&text(2_654_435_761), &text(40_503)).len() > 131_072);
}
