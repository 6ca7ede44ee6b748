//! The table of all steps.

macro_rules! points {
    ($($name:ident $text:literal)*) => {
        /// A step at which a process can be killed. Its text begins with the work that leads there.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Point {
            $(#[doc = $text] $name,)*
        }

        impl Point {
            /// All of them; each stands at its number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// For people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// What tells of it.
            #[must_use]
            pub fn number(self) -> u8 {
                self as u8
            }
        }
    };
}

points! {
    // The jail, then the server.
    DataLocked "start: the data folder is locked"
    RootBuilt "start: the jail's root is built"
    Swept "start: an earlier life is swept"
    UidsTaken "start: user ids are taken"
    ServerForked "start: the server is forked"
    DatabaseOpened "start: the database is open"
    LostRunsEnded "start: lost runs are ended"

    // The jail, for a sandbox that waits.
    GroupsMade "park: the cgroups are made"
    CageForked "park: the first process is forked"
    MountsHandedOver "park: the mounts are handed over"
    CageVerified "park: the cage is verified"
    // The server.
    SandboxParked "park: the guest answers"

    // The server, for a run.
    RunAllowed "run: it is allowed"
    RunAdmitted "run: it is admitted"
    RunSliced "run: its slices are known"
    RunLogged "run: its log is made"
    RunRecorded "run: it is recorded"
    RunOrdered "run: the node has it"
    CheckedOut "run: the slices are checked out"
    SandboxTaken "run: it has a sandbox"
    // The jail.
    LimitsSet "run: the cage has its limits"
    SlicesBuilt "run: the slices are built"
    SlicesMounted "run: the slices are mounted"
    // The server.
    SandboxClaimed "run: the sandbox is claimed"
    GuestGreeted "run: the guest knows its run"
    ProgramStarted "run: the program is started"
    EventsKept "run: events are kept"
    OutputCame "run: output came"
    ProgramEnded "run: the program has ended"
    // The jail.
    CageKilled "run: the cage is killed"
    CageStopped "run: the cage is stopped"
    // The server.
    SandboxStopped "run: the sandbox is stopped"
    // The jail.
    CollectorForked "run: the collector is forked"
    // The server.
    CollectorOpened "run: the collector is listened to"
    ChangesCame "run: changes came"
    ChangesEnded "run: the changes are whole"
    // The jail.
    CollectorReaped "run: the collector is reaped"
    // The server.
    ChangesApplied "run: the changes are a version"
    RunEnding "run: the end is to be recorded"
    RunEnded "run: the end is recorded"
    RunTold "run: the end is told"
    // The jail.
    CageRemoving "run: the cage is killed for good"
    DiskGone "run: the cage's disk is gone"
    GroupsGone "run: the cage's cgroups are gone"
    // The server.
    SandboxDestroyed "run: the sandbox is destroyed"

    // The server, for a version of any kind.
    ObjectsWritten "commit: the objects are written"
    ObjectsSynced "commit: the objects are synced"
    PackNamed "commit: a file of the pack has its name"
    FolderSynced "commit: the folder is synced"
    TransactionFull "commit: the transaction is full"
    TransactionDone "commit: the transaction is done"
    FileSynced "commit: a small file is synced"
    RefsPublished "commit: git sees the branches"

    // The server, for a file.
    WriteAllowed "write: it is allowed"
    WriteLanded "write: the branch has moved"
    WriteAudited "write: it is on the audit"

    // The server, for garbage.
    VersionsCounted "gc: it is known what is too old"
    VersionsRefused "gc: old versions are refused"
    VersionsCut "gc: old versions are cut off"
    LiveMarked "gc: what is live is marked"
    LiveCopied "gc: what is live is copied"
    PacksSwapped "gc: the packs are swapped"
    IndexRemoved "gc: an index is removed"
    PacksRemoved "gc: the packs are removed"
    Condemned "gc: the rest is condemned"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_point_stands_at_its_number_and_has_a_text_of_its_own() {
        for (at, point) in Point::ALL.iter().enumerate() {
            assert_eq!(usize::from(point.number()), at);
        }
        let texts: BTreeSet<&str> = Point::ALL.iter().map(|point| point.text()).collect();
        assert_eq!(texts.len(), Point::ALL.len());
    }
}
