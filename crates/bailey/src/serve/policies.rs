//! Follows the operator's folder of policies: what changes there is in force within two seconds, whole or not at all.

use std::path::Path;
use std::time::Duration;

use bailey_control::control::Control;
use bailey_policy::Policies;
use bailey_protocol::jail::server_path;

use crate::config::policies;

/// How often the folder is looked at.
const EVERY: Duration = Duration::from_millis(500);
/// Looks until a set that was not put in force is tried again: the solver may have been in want of time.
const PATIENCE: u32 = 120;

type Files = Vec<(String, String)>;

/// Puts in force what the folder holds, each time that it is not what it was. A set that cannot be used is refused,
/// once; the one in force stays.
pub(super) async fn follow(control: Control, known: Files) {
    let at_start = mounted_from();
    let mut follower = Follower::new(known);
    loop {
        tokio::time::sleep(EVERY).await;
        let begun_at = at_start.clone();
        let read = tokio::task::spawn_blocking(move || read(begun_at.as_deref())).await;
        // A look that broke off found nothing that may be put in force.
        match follower.look(read.unwrap_or_else(|panicked| Err(panicked.to_string()))) {
            Step::Nothing => {}
            Step::Refuse(why) => control.refuse_policies(&why),
            Step::Activate(files) => {
                // It walks policies and may wait for a thread.
                let read = tokio::task::spawn_blocking(move || Policies::new(&files).map(|set| (set, files))).await;
                match read {
                    Ok(Ok((set, files))) => {
                        if control.activate_policies(set).await {
                            note(Path::new(server_path::DATA), &files);
                        } else {
                            follower.try_again();
                        }
                    }
                    Ok(Err(error)) => control.refuse_policies(&error.to_string()),
                    Err(panicked) => control.refuse_policies(&panicked.to_string()),
                }
            }
        }
    }
}

/// Notes which policies are in force, for whoever looks at the data folder without the server. Of what was not noted that
/// knows nothing, and nothing else depends on it.
pub(super) fn note(data: &Path, files: &Files) {
    let (file, next) = (data.join(policies::IN_FORCE), data.join("policies.json.next"));
    let noted = serde_json::to_vec(files).map_err(std::io::Error::from);
    let noted = noted.and_then(|text| std::fs::write(&next, text)).and_then(|()| std::fs::rename(&next, &file));
    if let Err(error) = noted {
        tracing::warn!(error = &error as &dyn std::error::Error, "which policies are in force is not noted");
        // Rather none than those of before.
        drop(std::fs::remove_file(&file));
    }
}

fn read(at_start: Option<&str>) -> Result<Files, String> {
    if mounted_from().as_deref() != at_start {
        return Err(
            "the folder was moved, removed or replaced: restart the server to follow what is there now".to_owned()
        );
    }
    policies::read(Path::new(server_path::POLICIES)).map_err(|error| error.to_string())
}

/// Where the folder in the server's root comes from. It stays the folder that it was at the start, whatever is at its
/// path later; the kernel says so here.
fn mounted_from() -> Option<String> {
    from_of(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, server_path::POLICIES)
}

fn from_of(mounts: &str, at: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (from, place) = (fields.next()?, fields.next()?);
        (place == at).then(|| from.to_owned())
    })
}

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    Refuse(String),
    Activate(Files),
}

/// What was seen of the folder so far.
#[derive(Debug)]
struct Follower {
    /// What was tried last.
    known: Files,
    /// What was seen once: files are read one after another, so that one look may be half an old set and half a new one.
    seen: Option<Files>,
    /// Whether no policies at all is what the operator began with. Else an empty folder is a copy that has only begun,
    /// or a disk that is gone.
    may_be_empty: bool,
    /// Why the folder was refused last, if it was.
    refused: Option<String>,
    /// Looks until the known set is tried again.
    again: Option<u32>,
}

impl Follower {
    fn new(known: Files) -> Self {
        Self { may_be_empty: known.is_empty(), known, seen: None, refused: None, again: None }
    }

    fn look(&mut self, read: Result<Files, String>) -> Step {
        let files = match read {
            Ok(files) if files.is_empty() && !self.may_be_empty => {
                return self.refuse("the folder is empty, which it was not at the start".to_owned());
            }
            Ok(files) => files,
            Err(why) => return self.refuse(why),
        };
        let due = self.again.as_mut().is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        if files == self.known && self.refused.is_none() && !due {
            self.seen = None;
            return Step::Nothing;
        }
        if self.seen.as_ref() != Some(&files) && !due {
            self.seen = Some(files);
            return Step::Nothing;
        }
        (self.seen, self.refused, self.again) = (None, None, None);
        self.known.clone_from(&files);
        Step::Activate(files)
    }

    fn refuse(&mut self, why: String) -> Step {
        self.seen = None;
        if self.refused.as_ref() == Some(&why) {
            return Step::Nothing;
        }
        self.refused = Some(why.clone());
        Step::Refuse(why)
    }

    fn try_again(&mut self) {
        self.again = Some(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Files {
        vec![("a.cedar".to_owned(), text.to_owned())]
    }

    #[test]
    fn c13_a_change_is_put_in_force_once_two_looks_found_the_same() {
        let mut follower = Follower::new(files("old"));
        assert_eq!(follower.look(Ok(files("old"))), Step::Nothing);
        for torn in ["half", "more", "half"] {
            assert_eq!(follower.look(Ok(files(torn))), Step::Nothing);
        }
        assert_eq!(follower.look(Ok(files("new"))), Step::Nothing);
        assert_eq!(follower.look(Ok(files("new"))), Step::Activate(files("new")));
        assert_eq!(follower.look(Ok(files("new"))), Step::Nothing);
    }

    #[test]
    fn c13_a_folder_that_became_empty_is_refused_and_one_that_was_is_not() {
        let mut follower = Follower::new(files("old"));
        assert!(matches!(follower.look(Ok(Vec::new())), Step::Refuse(why) if why.contains("empty")));
        for _ in 0..3 {
            assert_eq!(follower.look(Ok(Vec::new())), Step::Nothing, "it is said once");
        }
        // What was in force is put in force again, so that it is refused no more.
        assert_eq!(follower.look(Ok(files("old"))), Step::Nothing);
        assert_eq!(follower.look(Ok(files("old"))), Step::Activate(files("old")));
        let mut follower = Follower::new(Vec::new());
        for now in [files("new"), Vec::new()] {
            assert_eq!(follower.look(Ok(now.clone())), Step::Nothing);
            assert_eq!(follower.look(Ok(now.clone())), Step::Activate(now));
        }
    }

    #[test]
    fn what_was_not_proven_is_tried_again_later() {
        let mut follower = Follower::new(files("old"));
        follower.try_again();
        for _ in 1..PATIENCE {
            assert_eq!(follower.look(Ok(files("old"))), Step::Nothing);
        }
        assert_eq!(follower.look(Ok(files("old"))), Step::Activate(files("old")));
        assert_eq!(follower.look(Ok(files("old"))), Step::Nothing);
    }

    #[test]
    fn a_folder_that_is_another_one_is_told_by_where_it_comes_from() {
        let line =
            |from: &str| format!("1 2 8:1 / / ro - ext4 a rw\n36 35 98:0 {from} /policies ro,noexec - ext4 b rw\n");
        assert_eq!(from_of(&line("/etc/bailey/policies"), "/policies").as_deref(), Some("/etc/bailey/policies"));
        assert_eq!(from_of(&line("/gone//deleted"), "/policies").as_deref(), Some("/gone//deleted"));
        assert_eq!(from_of(&line("/x"), "/other"), None);
    }
}
