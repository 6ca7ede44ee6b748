//! The parsers of what others made, as fuzzers have them: change streams, archives, packs and their objects. Each input
//! meets a store on disk, and what that takes in is read again and written out.

mod archives;
mod changes;
mod scratch;
#[cfg(test)]
mod seeds;

pub use crate::pushed::fuzz::{objects, packs};
pub use archives::archives;
pub use changes::changes;
pub(crate) use scratch::{Case, each};

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::Format;
    use crate::pushed::fuzz::{push_objects, push_pack};

    /// The names of the seeds that are taken in: no more than those that mean no harm, and no fewer.
    fn taken(seeds: &[(&'static str, Vec<u8>)], take: impl Fn(&[u8]) -> bool) -> Vec<&'static str> {
        seeds.iter().filter(|(_, bytes)| take(bytes)).map(|(name, _)| *name).collect()
    }

    #[test]
    fn no_change_stream_reaches_beyond_its_mount() {
        let seeds = seeds::changes();
        replay::seeds("changes", &seeds);
        assert_eq!(taken(&seeds, changes::apply), ["plain", "nothing", "git", "git-files", "twice"]);
        replay::target("changes", 800, changes);
    }

    #[test]
    fn f10_f11_no_archive_reaches_beyond_its_folder() {
        let seeds = seeds::archives();
        replay::seeds("archives", &seeds);
        let tars = ["tar", "tar-gz", "tar-devices", "tar-pax-xattr"];
        assert_eq!(taken(&seeds, |bytes| archives::extract(bytes, Format::Tar)), tars);
        assert_eq!(taken(&seeds, |bytes| archives::extract(bytes, Format::Zip)), ["zip"]);
        replay::target("archives", 800, archives);
    }

    #[test]
    fn f15_no_pack_brings_what_a_tree_cannot_hold() {
        let seeds = seeds::packs();
        replay::seeds("packs", &seeds);
        assert_eq!(taken(&seeds, push_pack), ["plain"]);
        replay::target("packs", 600, packs);
        let seeds = seeds::objects();
        replay::seeds("objects", &seeds);
        assert_eq!(taken(&seeds, push_objects), ["plain", "link", "escape", "history"]);
        replay::target("objects", 800, objects);
    }
}
